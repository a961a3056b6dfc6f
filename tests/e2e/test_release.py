"""Upgrades of the last release's state to the current code replace nothing that has data or runs jobs."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.engines import PLUGIN, engine_for
from tests.e2e.release import PROJECT, STATE, own_program

pytestmark = pytest.mark.engine

RETAINED = (
    "aws:ec2", "aws:efs", "aws:eks", "aws:iam", "aws:kms", "aws:s3", "kubernetes:core/v1:Namespace",
    "kubernetes:core/v1:PersistentVolume", "kubernetes:kueue.x-k8s.io", "kubernetes:storage.k8s.io",
    "kubernetes:core/v1:Secret", "trainyard:aws",
)  # fmt: skip
"""Beginnings of types that must not be replaced: pools, cluster, network, keys, storage, queues, access."""
COMPONENT = {
    "name": PROJECT,
    "runtime": "yaml",
    "stackConfigDir": "stacks",
    "plugins": PLUGIN,
    "resources": {"cluster": {"type": "trainyard:Cluster", "properties": {"stack": "${trainyard:stack}"}}},
}


def state() -> Any:
    return json.loads(gzip.decompress(STATE.read_bytes()))


def plan(project: Path, folder: Path) -> dict[str, Any]:
    """Return the engine's report of a preview of this project on the release's state."""
    file = project / "stacks/Pulumi.dev.yaml"
    with engine_for(project, folder) as engine:
        engine.pulumi("stack", "init", "dev")
        saved = state()
        salt = yaml.safe_load(file.read_text())["encryptionsalt"]
        saved["deployment"]["secrets_providers"] = {"type": "passphrase", "state": {"salt": salt}}
        (folder / "state.json").write_text(json.dumps(saved))
        taken = engine.pulumi("stack", "import", "-s", "dev", "--file", str(folder / "state.json"))
        assert taken.returncode == 0, taken.stderr
        previewed = engine.pulumi("preview", "-s", "dev", "--json")
        assert previewed.returncode == 0, (previewed.stdout + previewed.stderr)[-3000:]
    found: dict[str, Any] = json.loads(previewed.stdout)
    return found


def harm(report: dict[str, Any]) -> list[str]:
    """Return the steps that delete or replace what has data or runs jobs.

    A version may add objects; a renamed object is also deleted under its old name.
    """
    steps = []
    for step in report["steps"]:
        kind = step["urn"].split("::")[2].rpartition("$")[2]
        if kind.startswith(RETAINED) and step["op"] not in {"same", "create", "update", "refresh", "read"}:
            steps.append(f"{step['op']} {kind} {step['urn'].rpartition('::')[2]}")
    return steps


def test_the_state_of_the_release_has_what_must_not_be_replaced() -> None:
    resources = state()["deployment"]["resources"]
    kinds = Counter(each["type"] for each in resources)
    beginnings = {beginning for beginning in RETAINED for kind in kinds if kind.startswith(beginning)}
    assert beginnings == set(RETAINED)
    assert STATE.stat().st_size < 150_000


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of the current program on the release's state."""
    folder = tmp_path_factory.mktemp("present")
    return plan(own_program(folder / "project"), folder)


def test_the_present_program_replaces_nothing_of_it(present: Any) -> None:
    assert harm(present) == []
    assert present["changeSummary"]["same"] > 150


def test_a_replacement_and_a_deletion_count_as_harm() -> None:
    """The steps are in the engine's form; in `make soak` the engine reports one."""
    urns = {
        kind: f"urn:pulumi:dev::trainyard::{kind}::x" for kind in ("aws:eks/nodeGroup:NodeGroup", "a:b:C")
    }
    operations = ("same", "update", "create", "replace", "delete")
    steps = [{"op": operation, "urn": urn} for operation in operations for urn in urns.values()]
    assert harm({"steps": steps}) == [f"{op} aws:eks/nodeGroup:NodeGroup x" for op in ("replace", "delete")]


def test_a_program_moves_into_the_component_and_nothing_is_replaced(present: Any, tmp_path: Path) -> None:
    project = own_program(tmp_path / "project")
    (project / "Pulumi.yaml").write_text(yaml.safe_dump(COMPONENT))
    report = plan(project, tmp_path)
    assert harm(report) == []
    more = report["changeSummary"]["create"] - present["changeSummary"].get("create", 0)
    assert more <= 2, "the component, and the provider that has it"


@pytest.mark.soak
def test_the_check_sees_a_replacement(tmp_path: Path) -> None:
    """A renamed pool is another pool."""
    project = own_program(tmp_path / "project")
    file = project / "stacks/Pulumi.dev.yaml"
    file.write_text(file.read_text().replace("zones: [us-east-2a", "zones: [us-east-2c, us-east-2a"))
    assert any(step.startswith("create") or "replace" in step for step in harm(plan(project, tmp_path)))
