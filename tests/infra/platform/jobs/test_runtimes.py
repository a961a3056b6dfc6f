"""Training runtimes: the pods of torch and MPI jobs, their grace period, and the fabric check."""

from typing import Any

import pytest

import catalog
from infra.common import names
from infra.platform.fabric import needs, with_fabric
from infra.platform.jobs.runtimes import EX_NO_FABRIC
from infra.platform.programs import on_fabric, program
from infra.stackfile.grace import runtime_grace_seconds
from infra.stackfile.job import JobSpec
from tests.infra.plan import Plan
from tests.tables import table
from trainyard.jobs.manifest import manifest
from trainyard_train.parallelism.accelerators import AMD, NVIDIA, PER_NODE, RESOURCE


def pods(plan: Plan, runtime: str) -> dict[str, dict[str, Any]]:
    """Return replicated job → pod spec."""
    jobs = plan.named("ClusterTrainingRuntime")[runtime]["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}


def test_ranks_on_workers_have_the_variables_of_their_pod(local_plan: Plan) -> None:
    [container] = pods(local_plan, "mpi-tcp")["node"]["containers"]
    assert {each["name"] for each in container["env"]} <= set(container["args"])


def test_pods_of_an_mpi_job_signal_its_ranks_before_they_end(local_plan: Plan) -> None:
    for pod in pods(local_plan, "mpi-tcp").values():
        [container] = pod["containers"]
        python, option, program = container["lifecycle"]["preStop"]["exec"]["command"]
        assert (python, option) == ("python3", "-c")
        compile(program, "preStop", "exec")  # to run it would terminate other tests' ranks: tests/e2e does


@pytest.mark.parametrize(("notices", "asked", "seconds"), table(__file__))
def test_a_grace_is_that_of_the_pool_with_the_longest_unless_the_stack_sets_it(
    notices: list[int | None], asked: dict[str, int], seconds: int
) -> None:
    assert runtime_grace_seconds("torch-tcp", notices, asked) == seconds


BARE = {
    "name": "node",
    "env": [],
    "resources": {},
    "volumeMounts": [],
    "image": "i",
    "imagePullPolicy": "Never",
}
CAPABLE = {"securityContext": {"capabilities": {"drop": ["ALL"]}}}


def on(fabric: str, **container: Any) -> dict[str, Any]:
    """Return the container of a pod on a fabric."""
    pod = with_fabric({"containers": [{**BARE, **CAPABLE, **container}], "volumes": []}, fabric)
    found: dict[str, Any] = pod["containers"][0]
    return found


@pytest.mark.parametrize("fabric", ["ib-ndr", "efav3", "roce-sriov", "roce", "tcpxo"])
def test_a_container_on_a_fabric_is_checked_as_it_starts(fabric: str) -> None:
    container = on(fabric, command=["torchrun"], lifecycle={"preStop": {"exec": {"command": ["a"]}}})
    assert {"name": "TRAINYARD_FABRIC", "value": needs(fabric)} in container["env"]
    command = container["lifecycle"]["postStart"]["exec"]["command"]
    assert command[:2] == ["/bin/sh", "-c"]
    assert command[2] == program("check_fabric.sh").rstrip()
    assert 128 + int(command[-1]) == EX_NO_FABRIC
    assert container["lifecycle"]["preStop"] == {"exec": {"command": ["a"]}}
    assert container["command"] == [*on_fabric(fabric), "torchrun"]


def test_a_runtime_may_be_left_unchecked() -> None:
    pod = with_fabric({"containers": [{**BARE, **CAPABLE}], "volumes": []}, "ib-ndr", check=False)
    assert "lifecycle" not in pod["containers"][0]


@pytest.mark.parametrize("fabric", ["tcp", "rocm", "ici"])
def test_without_a_network_other_than_tcp_nothing_is_checked(fabric: str) -> None:
    container = on(fabric, command=["torchrun"])
    assert container["command"] == [*on_fabric(fabric), "torchrun"]
    assert "lifecycle" not in container
    assert "TRAINYARD_FABRIC" not in {each["name"] for each in container["env"]}


def test_the_runtimes_name_accelerators_by_the_variables_that_ranks_read() -> None:
    assert (names.ACCELERATOR_VARIABLE, names.ACCELERATORS_VARIABLE) == (RESOURCE, PER_NODE)
    resources = {catalog.accelerator_resource("nvidia"), catalog.accelerator_resource("amd")}
    assert resources == {NVIDIA, AMD}


@pytest.mark.parametrize("framework", ["torch", "mpi"])
def test_a_job_that_we_submit_starts_as_the_runtimes_own_command_does(framework: str) -> None:
    def command(fabric: str) -> list[str]:
        job = JobSpec(
            name="a", team="b", runtime=f"{framework}-{fabric}", nodes=2, gpus=8, args=("--config", "c")
        )
        started: list[str] = manifest(job, "run")["spec"]["trainer"]["command"]
        return started

    assert command("rocm")[0] == ("mpirun" if framework == "mpi" else "python3")
    for fabric in ("tcp", "ib-ndr"):
        assert command(fabric) == [*on_fabric(fabric), *command("rocm")]
