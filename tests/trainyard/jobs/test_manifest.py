"""The TrainJob of a job with a command: how ranks start, secrets, data, code and limits."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.platform.programs import on_fabric, program, unpacking
from infra.stackfile import JobSpec, parse_job
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.job import InterruptionSpec
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.share import Share, canonical, share_of_pool
from tests.tables import table
from trainyard.jobs.key import RUN, SPEC
from trainyard.jobs.manifest import Checkout, manifest
from trainyard.jobs.placement import JobPlacement

IMAGE = f"registry.example.com/training@sha256:{'0' * 64}"
PILE = DatasetSpec.model_validate(
    {"name": "the-pile", "source": "s3://example-data/pile/", "digest": f"sha256:{'0' * 64}", "size": "1Gi"}
)


def job(*command: str, **more: Any) -> JobSpec:
    asked = {"name": "tune", "team": "research", "runtime": "torch-tcp", "command": list(command)}
    return parse_job({**asked, "nodes": 2, "gpus": 4, **more})


def spec(given: JobSpec, **how: Any) -> dict[str, Any]:
    found: dict[str, Any] = manifest(given, "run-001", [PILE], **how)["spec"]
    return found


def variables(given: JobSpec) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in spec(given)["trainer"]["env"]}


BY_RANK = ["/bin/sh", "-c", program("start_ranks.sh").rstrip(), "start_ranks"]
JOINED = ["/bin/sh", "-c", program("join_nodes.sh").rstrip(), "join_nodes"]
CODE = f"sha256:{'1' * 64}"
HOLD = ["/bin/sh", "-c", program("hold_failed.sh").rstrip(), "hold_failed"]
INSIDE = unpacking()
WITH_DRIVER = on_fabric("tcp")


OF_JOB = ("TRAINYARD_ACCELERATORS_PER_NODE", "A", "TRAINYARD_JOB", "TRAINYARD_RUN_DIR", "TRAINYARD_ORIGIN")
PYTHON = ["/bin/sh", "-c", 'command -v "$0" >/dev/null || exec python3 "$@"; exec "$0" "$@"']
STARTS = {
    "$driver": WITH_DRIVER,
    "$ranks": BY_RANK,
    "$joined": JOINED,
    "$inside": INSIDE,
    "$hold": HOLD,
    "$x": [word for name in OF_JOB for word in ("-x", name)],
    "$python": PYTHON,
    "$sbatch": ["python3", "-c", program("run_sbatch.py", port="29502").rstrip()],
}


@pytest.mark.parametrize(("command", "more", "started", "ranks"), table(__file__, "starts"))
def test_python_starts_once_per_accelerator_and_the_rest_once_per_node(
    command: str, more: dict[str, Any], started: str, ranks: int
) -> None:
    code = {"code": CODE} if "code" in more else {}
    trainer = spec(job(*command.split(), **{**more, **code}))["trainer"]
    words = [part for word in started.split() for part in STARTS.get(word, [word])]
    assert (trainer["command"], trainer["numProcPerNode"]) == (words, ranks)
    assert "args" not in trainer


def test_a_jobs_packages_precede_the_images_and_do_not_replace_them() -> None:
    given = job("sh", "-c", "echo $PYTHONPATH", env={"PYTHONPATH": "/mine"})
    found = variables(given)
    assert "PYTHONPATH" not in found and found["TRAINYARD_PYTHONPATH"] == "/mine"
    for images, joined in (({"PYTHONPATH": "/opt/src"}, "/mine:/opt/src\n"), ({}, "/mine\n")):
        environment = {**os.environ, "TRAINYARD_PYTHONPATH": "/mine", **images}
        environment |= {} if images else {"PYTHONPATH": ""}
        command = spec(given)["trainer"]["command"]
        assert subprocess.run(command, env=environment, capture_output=True, text=True).stdout == joined


def test_packages_beyond_the_image_are_on_the_path_and_in_the_origin() -> None:
    found = variables(job("python", "a.py", env={"PYTHONPATH": "src"}, packages=CODE))
    folder = f"/mnt/checkpoints/.trainyard/packages/{CODE.removeprefix('sha256:')}"
    assert (found["TRAINYARD_PACKAGES"], found["TRAINYARD_PYTHONPATH"]) == (folder, f"src:{folder}")
    assert json.loads(found["TRAINYARD_ORIGIN"])["packages"] == CODE


def test_mpis_ranks_get_a_jobs_packages_and_start_by_the_python_that_is_there(tmp_path: Path) -> None:
    """Ranks of other nodes come by SSH, which passes none of the pod's variables."""
    given = job("python", "a.py", runtime="mpi-tcp", env={"PYTHONPATH": "/mine"})
    command = spec(given)["trainer"]["command"]
    assert "PYTHONPATH" in command and "TRAINYARD_PYTHONPATH" not in command
    (tmp_path / "python3").write_text('#!/bin/sh\necho "python3 $*"\n')
    (tmp_path / "python3").chmod(0o755)
    started = [*command[command.index(PYTHON[-1]) - 2 :]]
    ended = subprocess.run(started, env={"PATH": str(tmp_path)}, capture_output=True, text=True)
    assert ended.stdout == "python3 a.py\n"


def test_secrets_are_only_referenced() -> None:
    by_variable = {"secret": "hf-1", "key": "value", "variable": "HF_TOKEN"}
    by_file = {"secret": "netrc-2", "key": "content", "file": "netrc"}
    given = job("python", "a.py", secrets=[by_variable, by_file])
    assert variables(given)["HF_TOKEN"] == {"secretKeyRef": {"name": "hf-1", "key": "value"}}
    (patch,) = spec(given)["runtimePatches"]
    (replicated,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    (source,) = pod["volumes"][0]["projected"]["sources"]
    assert source == {"secret": {"name": "netrc-2", "items": [{"key": "content", "path": "netrc"}]}}
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert mount == {"name": "secret-files", "mountPath": "/var/run/secrets/trainyard", "readOnly": True}


def test_a_command_gets_its_data_paths_and_its_origin() -> None:
    given = job("python", "a.py", datasets=["the-pile"], ports={"tensor-board": 6006}, image=IMAGE)
    output = variables(given)
    assert output["TRAINYARD_DATASET_THE_PILE"] == f"/mnt/datasets/the-pile/sha256-{'0' * 64}"
    assert output["TRAINYARD_PORT_TENSOR_BOARD"] == "6006"
    assert output["TRAINYARD_RUN_DIR"] == "/mnt/checkpoints/tune/run-001"
    annotations = manifest(given, "run-001", [PILE])["metadata"]["annotations"]
    assert annotations["trainyard.dev/ports"] == "tensor-board=6006"
    assert json.loads(annotations["trainyard.dev/origin"]) == {
        "image": IMAGE,
        "command": ["python", "a.py"],
        "datasets": {"the-pile": PILE.digest},
    }
    assert spec(given)["trainer"]["image"] == IMAGE


@pytest.mark.parametrize("runtime", ["torch-tcp", "mpi-tcp"])
def test_code_is_unpacked_before_the_ranks_start_and_the_job_records_its_origin(runtime: str) -> None:
    given = job("python", "a.py", code=CODE, runtime=runtime)
    checkout = Checkout(image="of-the-runtime", commit="c0ffee", dirty=True)
    found = manifest(given, "run-001", checkout=checkout)
    assert "runtimePatches" not in found["spec"], "Trainer gives workers of MPI the variables of the job"
    assert found["spec"]["trainer"]["command"][:6] == unpacking()
    stored = manifest(given.model_copy(update={"hold_on_failure_minutes": 5}), "run-001")
    command = stored["spec"]["trainer"]["command"]
    assert command[:6] == unpacking() and command[9] == "hold_failed", "a pack that is wrong is not held"
    has = {each["name"]: each["value"] for each in found["spec"]["trainer"]["env"]}
    origin = found["metadata"]["annotations"]["trainyard.dev/origin"]
    assert (has["TRAINYARD_CODE"], has["TRAINYARD_ORIGIN"]) == (CODE, origin)
    own = {"image": "of-the-runtime", "command": ["python", "a.py"], "datasets": {}}
    assert json.loads(origin) == {**own, "code": CODE, "commit": "c0ffee", "dirty": True}


def test_a_job_is_stored_as_requested_so_that_it_can_be_rerun() -> None:
    given = job("python", "a.py", code=CODE, env={"A": "1"}, nodes=3)
    stored = manifest(given, "run-001")["metadata"]["annotations"]["trainyard.dev/job"]
    assert parse_job(json.loads(stored)) == given


@pytest.mark.parametrize(("has_agent", "words", "started"), table(__file__, "agents"))
def test_ranks_are_started_by_our_agent_where_the_image_has_it(
    tmp_path: Path, has_agent: bool, words: list[str], started: str
) -> None:
    """An image that has no `python` has `python3`."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nif [ "$1" = -c ]; then exit {0 if has_agent else 1}; fi\necho "$*"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [*BY_RANK, "3", *words], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{started}\n"


def test_limits_of_time_and_memory_are_fields_of_the_job_that_the_cluster_enforces() -> None:
    given = job("python", "a.py", time_limit="90m", cpu=8, memory="1024Gi", shared_memory="16Gi")
    found = spec(given)
    assert found["activeDeadlineSeconds"] == 5400
    assert found["trainer"]["resourcesPerNode"] == {
        "requests": {"cpu": "8", "memory": "1Ti", "nvidia.com/gpu": "4"},
        "limits": {"memory": "1Ti", "nvidia.com/gpu": "4"},
    }
    (patch,) = found["runtimePatches"]
    assert '"sizeLimit": "16Gi"' in json.dumps(patch)


def test_a_shorter_grace_period_sets_torchruns_timeout() -> None:
    output = variables(job("python", "a.py", grace="60s"))
    assert (output["TRAINYARD_GRACE_SECONDS"], output["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"]) == ("60", "55")


def test_each_accelerator_comes_with_its_share_of_the_machine() -> None:
    facts = {"name": "pool", "capacity": "on-demand", "nodes": 1}
    known = NodePoolSpec.model_validate({**facts, "machine": "p5.48xlarge"})
    share = share_of_pool(known)
    assert share == Share(cpus=19.0, memory_gib=204.75), "four fifths of 192 vCPUs and 2,048 GiB, by eight"
    assert spec(job("python", "a.py"), placement=JobPlacement("research", share=share))["trainer"][
        "resourcesPerNode"
    ]["requests"] == {"cpu": "76", "memory": "819Gi", "nvidia.com/gpu": "4"}
    simulated = {"model": "simulated", "count": 1}
    unknown = NodePoolSpec.model_validate({**facts, "accelerator": simulated})
    assert share_of_pool(unknown) == Share()
    assert Share().requests(1) == {"cpu": "250m", "memory": "512Mi"}


def test_quantities_are_as_kubernetes_writes_them() -> None:
    assert [canonical(text) for text in ("5120Mi", "512Mi", "1048576Mi", "8")] == ["5Gi", "512Mi", "1Ti", "8"]


ARGS = ("--config", "digits", "--set", "steps=300")
DIGITS = JobSpec(name="digits", team="research", runtime="torch-tcp", nodes=2, args=ARGS)


def test_arguments_reach_the_training_package_with_the_runs_folder() -> None:
    arguments = manifest(DIGITS, "run-001")["spec"]["trainer"]["args"]
    assert arguments == [*ARGS, "--set=run_dir=/mnt/checkpoints/digits/run-001"]


def test_a_job_with_a_grace_period_exits_before_it_ends() -> None:
    job = DIGITS.model_copy(update={"grace_seconds": 60})
    assert "--set=timeouts.leave=55" in manifest(job, "run-001")["spec"]["trainer"]["args"]


def test_a_job_is_submitted_to_its_teams_queue_with_its_priority() -> None:
    metadata = manifest(DIGITS, "run-001")["metadata"]
    assert metadata["namespace"] == "team-research"
    labels = {"queue-name": "research", "priority-class": "normal"}
    assert metadata["labels"] == {f"kueue.x-k8s.io/{key}": value for key, value in labels.items()}


def test_mpirun_starts_all_ranks_of_an_mpi_job() -> None:
    job = DIGITS.model_copy(update={"runtime": "mpi-tcp", "processes_per_node": 4})
    trainer = manifest(job, "run-001")["spec"]["trainer"]
    assert trainer["command"] == [*WITH_DRIVER, "mpirun", "-n", "8", "python3", "-m", "trainyard_train.train"]
    alone = manifest(DIGITS, "run-001")["spec"]["trainer"]["command"]
    assert alone == [*WITH_DRIVER, "python3", "-m", "trainyard_train.train"]


def test_a_job_on_a_fabric_requests_its_devices_too() -> None:
    job = DIGITS.model_copy(update={"runtime": "torch-efav3", "accelerators_per_node": 8})
    limits = manifest(job, "run-001")["spec"]["trainer"]["resourcesPerNode"]["limits"]
    assert limits == {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "16", "hugepages-2Mi": "5Gi"}


def test_the_hash_of_a_job_does_not_depend_on_scheduled_interruptions() -> None:
    def asked(job: JobSpec) -> str:
        return str(manifest(job, "run-001")["metadata"]["annotations"][SPEC])

    lossy = DIGITS.model_copy(update={"interruptions": (InterruptionSpec(at_step=5),)})
    longer = DIGITS.model_copy(update={"args": ("--config", "gpt")})
    assert asked(lossy) == asked(DIGITS)
    assert asked(longer) != asked(DIGITS)
    assert manifest(DIGITS, "run-002")["metadata"]["annotations"][RUN] == "run-002"


def test_a_dataset_reaches_the_training_package_as_its_path() -> None:
    job = DIGITS.model_copy(update={"datasets": ("the-pile",)})
    arguments = manifest(job, "run-001", [PILE])["spec"]["trainer"]["args"]
    assert f"--set=data.path=/mnt/datasets/the-pile/sha256-{'0' * 64}" in arguments


def test_the_hash_of_a_job_depends_on_its_data() -> None:
    job = DIGITS.model_copy(update={"datasets": ("the-pile",)})
    newer = PILE.model_copy(update={"digest": f"sha256:{'1' * 64}"})
    hashes = {manifest(job, "run-001", [data])["metadata"]["annotations"][SPEC] for data in (PILE, newer)}
    assert len(hashes) == 2
