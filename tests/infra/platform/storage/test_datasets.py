"""Datasets in the plan: one Job stages each, and the teams' jobs read it at one path."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.common import names
from infra.stackfile import Stack, load
from infra.stackfile.dataset import DatasetSpec
from tests.infra.plan import Plan, plan, stack_file
from tests.infra.platform.jobs.test_runtimes import pods

DIGEST = f"sha256:{'0' * 64}"
PILE = DatasetSpec.model_validate(
    {"name": "pile", "source": "s3://example-data/pile/", "digest": DIGEST, "size": "100Gi"}
)
FILE = DatasetSpec.model_validate(
    {"name": "books", "source": "/imports/books.jsonl", "digest": DIGEST, "size": "1Gi"}
)


def staging(found: Plan) -> dict[str, Mapping[str, Any]]:
    """Return dataset → the Job that stages it."""
    jobs = found.named("Job").values()
    label = names.DATASET_LABEL
    return {job["metadata"]["labels"][label]: job for job in jobs if label in job["metadata"]["labels"]}


def pod(job: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = job["spec"]["template"]["spec"]
    return found


@pytest.fixture(scope="module")
def staged(local: Stack, rendered: Path) -> Plan:
    return plan(local.model_copy(update={"datasets": (PILE, FILE)}), rendered)


def test_each_dataset_is_fetched_once_to_its_digest(staged: Plan) -> None:
    jobs = staging(staged)
    assert jobs.keys() == {"pile", "books"}
    assert pod(jobs["pile"])["containers"][0]["command"] == [
        *(
            "python3",
            "-m",
            "trainyard_train.data.stage",
            "fetch",
            "s3://example-data/pile/",
            "/data/datasets/pile",
        ),
        *("--digest", DIGEST, "--max-gib", "100"),
    ]
    assert pod(jobs["books"])["containers"][0]["command"][4] == "/data/imports/books.jsonl"
    assert all(job["metadata"]["namespace"] == names.STORAGE_NAMESPACE for job in jobs.values())


def test_an_update_does_not_wait_for_terabytes(staged: Plan) -> None:
    assert {job["metadata"]["annotations"]["pulumi.com/skipAwait"] for job in staging(staged).values()} == {
        "true"
    }


def test_teams_read_what_was_staged_and_cannot_write_it(local: Stack, staged: Plan) -> None:
    claims, volumes = staged.named("PersistentVolumeClaim"), staged.named("PersistentVolume")
    for team in local.teams:
        claim = claims[f"team-{team.name}/datasets"]["spec"]
        assert claim["accessModes"] == ["ReadOnlyMany"]
        assert volumes[claim["volumeName"]]["spec"]["hostPath"]["path"].endswith("/data/datasets")
    node = pods(staged, "torch-tcp")["node"]
    mount = {"name": "datasets", "mountPath": "/mnt/datasets", "readOnly": True}
    assert mount in node["containers"][0]["volumeMounts"]
    assert staged.outputs["datasets"] == {
        "pile": f"/mnt/datasets/pile/sha256-{'0' * 64}",
        "books": f"/mnt/datasets/books/sha256-{'0' * 64}/books.jsonl",
    }


def test_a_dataset_with_readers_is_shown_to_these_teams_alone(local: Stack, rendered: Path) -> None:
    ours = PILE.model_copy(update={"teams": ("research",)})
    found = plan(local.model_copy(update={"datasets": (ours, FILE)}), rendered)
    claims, volumes = found.named("PersistentVolumeClaim"), found.named("PersistentVolume")
    for team in local.teams:
        volume = claims[f"team-{team.name}/datasets"]["spec"]["volumeName"]
        assert volumes[volume]["spec"]["hostPath"]["path"].endswith(f"/data/dataset-views/{team.name}")
    jobs = staging(found)
    [stage], [show] = pod(jobs["pile"])["initContainers"], pod(jobs["pile"])["containers"]
    assert stage["command"][:4] == ["python3", "-m", "trainyard_train.data.stage", "fetch"]
    folders = ["/data/datasets", "/data/dataset-views", f"pile/sha256-{'0' * 64}"]
    assert show["command"][3:] == [*folders, "research", "platform"]
    assert pod(jobs["books"])["containers"][0]["command"][-2:] == ["research platform", ""]


def test_a_filesystem_of_each_team_is_filled_by_a_queued_job_of_its_readers(rendered: Path) -> None:
    """The operators cannot use the team's pools, and the team may write its copy."""
    stack = load(stack_file("coreweave"))
    ours = PILE.model_copy(update={"public": True, "teams": (stack.teams[0].name,)})
    found = plan(stack.model_copy(update={"datasets": (ours,)}), rendered)
    job = staging(found)["pile"]
    assert job["metadata"]["namespace"] == names.team_namespace(stack.teams[0].name)
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "default"
    assert "nodeSelector" not in pod(job)
    lists = found.named("ConfigMap")["trainyard-admission/teams"]["data"]
    assert "datasets" not in lists[f"{stack.teams[0].name}.read_only_claims"].split(", ")


def test_another_version_of_a_dataset_is_another_job(local: Stack, staged: Plan, rendered: Path) -> None:
    newer = PILE.model_copy(update={"digest": f"sha256:{'1' * 64}"})
    after = staging(plan(local.model_copy(update={"datasets": (newer, FILE)}), rendered))
    before = staging(staged)
    assert before["pile"]["metadata"]["name"] != after["pile"]["metadata"]["name"]
    assert before["books"]["metadata"]["name"] == after["books"]["metadata"]["name"]


def test_keys_come_from_a_secret_and_open_data_need_none(local: Stack, rendered: Path) -> None:
    keyed = PILE.model_copy(update={"secret": "pile-keys"})
    public = PILE.model_copy(update={"name": "commons", "public": True})
    jobs = staging(plan(local.model_copy(update={"datasets": (keyed, public)}), rendered))
    assert pod(jobs["pile"])["containers"][0]["envFrom"] == [{"secretRef": {"name": "pile-keys"}}]
    assert {"name": "AWS_SKIP_SIGNATURE", "value": "true"} in pod(jobs["commons"])["containers"][0]["env"]
