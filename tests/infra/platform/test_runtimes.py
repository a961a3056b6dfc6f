from __future__ import annotations

from typing import Any

from tests.infra.plan import Plan


def pods(plan: Plan, runtime: str) -> dict[str, dict[str, Any]]:
    """Replicated job → pod spec."""
    jobs = plan.named("ClusterTrainingRuntime")[runtime]["spec"]["template"]["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}


def test_a_pod_obeys_signals_while_python_still_imports(local_plan: Plan) -> None:
    for runtime in ("torch-none", "mpi-none"):
        assert all(pod["shareProcessNamespace"] for pod in pods(local_plan, runtime).values())


def test_mpirun_of_open_mpi_5_finds_the_host_file(local_plan: Plan) -> None:
    launcher = pods(local_plan, "mpi-none")["launcher"]
    variables = {each["name"]: each.get("value") for each in launcher["containers"][0]["env"]}
    assert variables["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile"
    assert variables["PRTE_MCA_prte_do_not_resolve"] == "false"


def test_the_launcher_waits_for_its_own_name_and_takes_no_accelerator_for_it(local_plan: Plan) -> None:
    (waiting,) = pods(local_plan, "mpi-none")["launcher"]["initContainers"]
    assert "getaddrinfo" in waiting["command"][-1]
    assert not waiting["resources"]


def test_ranks_on_workers_have_the_variables_of_their_pod(local_plan: Plan) -> None:
    [container] = pods(local_plan, "mpi-none")["node"]["containers"]
    assert {each["name"] for each in container["env"]} <= set(container["args"])


def test_pods_of_an_mpi_job_tell_its_ranks_before_they_end(local_plan: Plan) -> None:
    for pod in pods(local_plan, "mpi-none").values():
        [container] = pod["containers"]
        python, option, program = container["lifecycle"]["preStop"]["exec"]["command"]
        assert (python, option) == ("python3", "-c")
        compile(program, "preStop", "exec")  # it would end this machine's ranks, too: tests/e2e runs it


def test_pods_have_the_notice_of_the_pools_to_leave_in(local_plan: Plan) -> None:
    assert pods(local_plan, "torch-none")["node"]["terminationGracePeriodSeconds"] == 30
