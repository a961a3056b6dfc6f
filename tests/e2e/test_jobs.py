"""Jobs of every kind on the local stack: training, preemption, failures, fabric checks and the queue."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import psutil
import pytest

from engine.paths import REPOSITORY
from infra.common import names
from infra.platform.fabric import with_fabric
from infra.platform.jobs.runtimes import EX_NO_FABRIC
from tests.e2e import manifests, packages_inside
from tests.e2e.jobs import conditions, logs, logs_of_completed
from tests.e2e.manifests import NAMESPACE
from tests.e2e.stack import JOB, Declaration, LocalStack, Running, TrainingRun, job, overrides, patched
from trainyard.jobs.manifest import CHECKPOINTS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]
SPOT, ON_DEMAND = {"spot-0", "spot-1"}, {"on-demand-0", "on-demand-1"}
LOSS_STEP = 15
"""A step between two checkpoints, which are ten steps apart."""
SAVE_SECONDS = 20
"""Twice a run's default exit timeout, which holds where no grace period is set."""
FABRIC, SET = "ib-sriov", "jobset.sigs.k8s.io/jobset-name"
CONTAINER: Declaration = {
    "containers": [{"env": [], "resources": {}, "volumeMounts": [], "securityContext": {"capabilities": {}}}],
    "volumes": [],
}


def test_a_job_trains_on_the_preferred_flavor_to_its_last_step(
    stack: LocalStack, uninterrupted: TrainingRun
) -> None:
    [nodes] = uninterrupted.nodes
    assert set(nodes) == SPOT
    assert uninterrupted.step == JOB["steps"]
    assert not uninterrupted.repeated_steps
    assert (uninterrupted.folder / "learning-curve.png").stat().st_size > 10_000
    assert "calm" in stack.trainyard("status").out


def test_a_preempted_job_has_time_to_save_and_ends_with_the_same_weights(
    stack: LocalStack, uninterrupted: TrainingRun
) -> None:
    run = stack.run_of("noticed")
    slow = {"checkpoint.every_steps": 1000, "checkpoint.pace_seconds": SAVE_SECONDS, "pace_seconds": 0.5}
    with stack.declared(job("noticed"), overrides(**slow)):
        submitted = stack.start("run", str(stack.job_file))
        submitted.wait_for(lambda: run.step > 0, "a step")
        assert graces(stack, "noticed") == {300}
        notice = stack.start("local", "preempt", "spot-1", "--notice", "120")
        output = submitted.end(0)
    cut_short(stack, notice, "spot-1")
    [saved] = [line for line in run.lines if line["event"] == "checkpoint" and line["reason"] == "notice"]
    assert saved["seconds"] >= SAVE_SECONDS
    assert run.resumed_at == saved["step"]
    assert run.sha256 == uninterrupted.sha256
    assert not run.repeated_steps
    assert "exited with the checkpoint of step" in output.text
    assert "admitted to on-demand" in output.text
    assert set(run.nodes[-1]) == ON_DEMAND


def cut_short(stack: LocalStack, notice: Running, node: str) -> None:
    """Take a node before its notice is over, and bring it back: nothing is left on it that would need it."""
    notice.signal(signal.SIGTERM)
    if notice.end().code:
        stack.trainyard("local", "preempt", node, "--notice", "1")
    stack.trainyard("local", "preempt", node, "--return")


def graces(stack: LocalStack, name: str) -> set[int]:
    """Seconds from SIGTERM to SIGKILL of a job's pods."""
    pods = stack.get("pods", "-n", NAMESPACE, "-l", f"jobset.sigs.k8s.io/jobset-name={name}")["items"]
    return {pod["spec"]["terminationGracePeriodSeconds"] for pod in pods}


def test_a_job_whose_node_dies_with_no_word_resumes_from_its_last_checkpoint_and_ends_with_the_same_weights(
    stack: LocalStack, uninterrupted: TrainingRun
) -> None:
    with stack.declared(job("killed", {"at_step": LOSS_STEP, "notice": "0s"})):
        stack.trainyard("run", str(stack.job_file))
    run = stack.run_of("killed")
    assert run.sha256 == uninterrupted.sha256
    run.assert_no_checkpointed_step_was_lost()
    assert run.resumed_at in range(10, 40, 10)
    assert stack.counted_restarts("killed") == 0
    assert went_to_the_other_flavor(run)


def went_to_the_other_flavor(run: TrainingRun) -> bool:
    """Whether it did. It may begin on either: Kueue may learn of a returned node after the admission."""
    return {frozenset(run.nodes[0]), frozenset(run.nodes[-1])} == {frozenset(SPOT), frozenset(ON_DEMAND)}


def test_a_rank_that_dies_alone_comes_back_in_its_pod(stack: LocalStack, uninterrupted: TrainingRun) -> None:
    run = stack.run_of("stumbled")
    long_timeout = overrides(**{"timeouts.rejoin": 60})
    with stack.declared(job("stumbled"), long_timeout):
        submitted = stack.start("run", str(stack.job_file))
        submitted.wait_for(lambda: run.step > 0, "a step")
        before, ranks = uids(stack, "stumbled"), ranks_of("stumbled")  # which takes seconds on a busy machine
        submitted.wait_for(lambda: run.step >= LOSS_STEP, f"step {LOSS_STEP}")
        ranks[-1].kill()
        submitted.end(0)
    assert len(before) == 2
    assert uids(stack, "stumbled") == before
    assert stack.get("jobset", "-n", NAMESPACE, "stumbled")["status"].get("restarts", 0) == 0
    assert len(run.nodes) == 2
    assert run.nodes[0] == run.nodes[1]
    run.assert_no_checkpointed_step_was_lost()
    assert run.sha256 == uninterrupted.sha256


def ranks_of(name: str) -> list[psutil.Process]:
    """The job's ranks, as this host sees them: what agents, with the same arguments, have forked."""
    setting = f"--set=run_dir={CHECKPOINTS}/{name}/run-001"
    found = {each.pid: each for each in psutil.process_iter() if setting in arguments_of(each)}
    return [process for process in found.values() if process.ppid() in found]


def arguments_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has ended
        return []


def uids(stack: LocalStack, name: str) -> set[str]:
    """The pods of a job, each as the one that it is."""
    pods = stack.get("pods", "-n", NAMESPACE, "-l", f"jobset.sigs.k8s.io/jobset-name={name}")["items"]
    return {pod["metadata"]["uid"] for pod in pods}


def test_a_wrong_configuration_ends_the_job_at_once(stack: LocalStack) -> None:
    wrong = ["python3", "-m", "trainyard_train.train", "--set=stepz=60"]
    stack.apply(manifests.train_job("wrong", runtime="torch-tcp", nodes=2, command=wrong))
    stack.wait_until(lambda: "Failed" in conditions(stack, "trainjob", "wrong"), "a failed job")
    assert "stepz" in logs(stack, "wrong")
    status = stack.get("jobset", "-n", NAMESPACE, "wrong")["status"]
    assert status["terminalState"] == "Failed"
    assert status.get("restarts", 0) == 0


NO_SHELL = "trainyard.local/pause:1.0.0"
"""An image that holds one program and nothing else."""


def of_its_own(
    name: str, *, framework: str = "torch", command: str = "sleep 300", **trainer: object
) -> Declaration:
    """A job with a command, which knows nothing of Trainyard."""
    own = {"numNodes": 2, "command": command.split(), **trainer}
    spec = {"runtimeRef": {"name": f"{framework}-{FABRIC}"}, "trainer": own}
    return manifests.queued("trainer.kubeflow.org/v1alpha1", "TrainJob", name, spec)


ON_FABRIC = {
    "torch": of_its_own("sockets-torch"),
    "mpi": of_its_own("sockets-mpi", framework="mpi"),
    "tcp": of_its_own("means-tcp", command="sleep 2", env=[{"name": "NCCL_NET", "value": "Socket"}]),
    "shell": of_its_own("no-shell", command="/pause", image=NO_SHELL),
}


@pytest.fixture(scope="module")
def on_fabric(stack: LocalStack) -> Iterator[LocalStack]:
    """The runtimes of a pool with InfiniBand on nodes that have none, and jobs on them."""
    [check] = with_fabric(CONTAINER, FABRIC)["containers"]
    for framework in ("torch", "mpi"):
        runtime = stack.get("clustertrainingruntime", f"{framework}-tcp")
        runtime["metadata"] = {"name": f"{framework}-{FABRIC}", "labels": runtime["metadata"]["labels"]}
        for replicated in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
            [container] = replicated["template"]["spec"]["template"]["spec"]["containers"]
            container["lifecycle"] = {**container.get("lifecycle", {}), **check["lifecycle"]}
            container["env"] += [*check["env"], {"name": "NCCL_NET", "value": "IB"}]
        stack.apply(runtime)
    stack.apply(*ON_FABRIC.values())  # together: each takes two of the four nodes for some seconds
    yield stack
    stack.kubectl("delete", "clustertrainingruntime", f"torch-{FABRIC}", f"mpi-{FABRIC}")


def ends(stack: LocalStack, name: str, condition: str) -> float:
    """Wait until the job has come to this end; return the seconds since its first pod started."""

    def ended() -> bool:
        true = conditions(stack, "trainjob", name)
        assert not (true.keys() & {"Complete", "Failed"}) - {condition}, json.dumps(true)
        return condition in true

    stack.wait_until(ended, f"{condition} of {name}")
    job = stack.get("trainjob", "-n", NAMESPACE, name)
    [end] = [each for each in job["status"]["conditions"] if each["type"] == condition]
    pods = stack.get("pods", "-n", NAMESPACE, "-l", f"jobset.sigs.k8s.io/jobset-name={name}")["items"]
    first = min(pod["status"]["startTime"] for pod in pods)
    return (datetime.fromisoformat(end["lastTransitionTime"]) - datetime.fromisoformat(first)).total_seconds()


@pytest.mark.parametrize("name", ["sockets-torch", "sockets-mpi"])
def test_a_job_that_would_fall_back_to_tcp_fails_within_a_minute(on_fabric: LocalStack, name: str) -> None:
    assert ends(on_fabric, name, "Failed") < 60
    assert on_fabric.counted_restarts(name) == 0, "nothing would be different"
    selected = ("pods", "-n", NAMESPACE, "-l", f"{SET}={name}")
    ended = [pod["status"]["containerStatuses"][0]["state"] for pod in on_fabric.get(*selected)["items"]]
    assert EX_NO_FABRIC in {state["terminated"]["exitCode"] for state in ended}
    described = on_fabric.kubectl("describe", *selected)
    assert "FailedPostStartHook" in described
    assert "ranks would leave the fabric" in described


def test_a_job_that_requests_tcp_is_not_changed(on_fabric: LocalStack) -> None:
    ends(on_fabric, "means-tcp", "Complete")


def test_the_command_line_reports_why_a_job_was_ended(on_fabric: LocalStack) -> None:
    """An image without a shell as well: the kubelet sends SIGTERM, on which this program ends with 0."""
    ends(on_fabric, "no-shell", "Complete")
    _, *output = re.split(r"(?m)^(?=[a-z-]+: )", on_fabric.trainyard("status").out)
    reasons = {each.partition(":")[0]: each for each in output}
    for name in ("sockets-torch", "sockets-mpi"):
        assert f"ranks would leave the fabric {FABRIC} of their pool" in reasons[name]
        assert "/dev/infiniband/uverbs*: missing; the node provides 0 of" in reasons[name]
        assert "NCCL_NET=Socket" in reasons[name]
    assert "their image has no /bin/sh" in reasons["no-shell"]
    log = on_fabric.trainyard("logs", "sockets-torch", "--node", "0").out
    assert log.count("ranks would leave the fabric") == 1


def test_fsdp_exits_on_a_notice_and_ends_with_a_laptops_weights(stack: LocalStack, tmp_path: Path) -> None:
    sharded = {"strategy": "fsdp"}
    with stack.declared(job("sharded", {"at_step": LOSS_STEP, "notice": "10s"}), overrides(**sharded)):
        stack.trainyard("run", str(stack.job_file))
    run = stack.run_of("sharded")
    assert {line.get("strategy") for line in run.lines if "strategy" in line} == {"fsdp"}
    assert not run.repeated_steps
    assert went_to_the_other_flavor(run)
    assert run.sha256 == on_this_machine(tmp_path, **JOB, **sharded)


def on_this_machine(folder: Path, **settings: object) -> str:
    """Train with two ranks and no cluster; returns the hash of the final weights."""
    given = {**settings, "pace_seconds": 0, "run_dir": folder}
    module = [sys.executable, "-m", "trainyard_train.train", "--nproc-per-node=2"]
    config = f"--config={REPOSITORY / 'training/configs/digits.yaml'}"
    chosen = [f"--set={key}={value}" for key, value in given.items()]
    subprocess.run([*module, config, *chosen], check=True)
    return TrainingRun(folder).sha256


def test_an_mpi_job_whose_worker_and_launcher_are_preempted_loses_no_step(
    stack: LocalStack, uninterrupted: TrainingRun
) -> None:
    run = stack.run_of("mpi")
    with stack.declared(job("mpi"), patched({"job.runtime": "mpi-tcp"}), overrides(pace_seconds=0.6)):
        submitted = stack.start("run", str(stack.job_file))
        for attempt, role in enumerate(("node", "launcher"), start=1):
            submitted.wait_for(
                lambda attempt=attempt: len(run.nodes) == attempt and run.step > run.resumed_at,  # type: ignore[misc]
                f"a step of attempt {attempt}",
            )
            node = node_of_role(stack, "mpi", role)
            stack.trainyard("local", "preempt", node, "--notice", "15")
            stack.trainyard("local", "preempt", node, "--return")
        submitted.end(0)
    assert len(run.nodes) == 3
    assert all(set(nodes) < SPOT | ON_DEMAND and len(nodes) == 2 for nodes in run.nodes)
    assert not run.repeated_steps
    assert run.sha256 == uninterrupted.sha256
    assert stack.counted_restarts("mpi") == 0


def node_of_role(stack: LocalStack, name: str, role: str) -> str:
    """Where the pod of a job's launcher is, or of its worker."""
    labels = f"jobset.sigs.k8s.io/jobset-name={name},jobset.sigs.k8s.io/replicatedjob-name={role}"
    pods = stack.get("pods", "-n", NAMESPACE, "-l", labels, "--field-selector=status.phase=Running")["items"]
    [node] = {pod["spec"]["nodeName"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    return str(node)


def test_every_preempted_node_is_given_back_when_its_job_has_ended(stack: LocalStack) -> None:
    stack.wait_until(lambda: stack.trainyard("status").out.count(" ready ") == 5, "five ready nodes")


def nodes_taken_by(stack: LocalStack, name: str) -> set[str]:
    """Run a job that only occupies two nodes until its pods run; return those nodes."""
    body = manifests.train_job(name, runtime="torch-tcp", nodes=2, command=["sleep", "900"])
    stack.apply(body)
    pods = ("pods", "-n", NAMESPACE, "-l", f"{SET}={name}", "--field-selector=status.phase=Running")
    stack.wait_until(lambda: len(stack.names(*pods)) == 2, f"two running pods of {name}")
    taken = {each["spec"]["nodeName"] for each in stack.get(*pods)["items"]}
    stack.kubectl("delete", "trainjob", name, "-n", NAMESPACE, "--wait=true")
    stack.wait_until(lambda: not stack.names(*pods[:5]), f"the end of the pods of {name}")
    return taken


def test_a_flavor_with_quota_but_without_enough_nodes_is_passed_over(stack: LocalStack) -> None:
    stack.trainyard("local", "preempt", "spot-1", "--no-notice")
    usage = stack.get("clusterqueue", "gpu")["status"]["flavorsUsage"]
    assert {item["name"]: item["resources"][0]["total"] for item in usage}["spot"] == "0"
    assert nodes_taken_by(stack, "elsewhere") == ON_DEMAND


def test_a_returned_node_is_used_by_the_next_job(stack: LocalStack) -> None:
    stack.trainyard("local", "preempt", "spot-1", "--return")
    stack.wait_until(lambda: nodes_taken_by(stack, "back") == SPOT, "a job on the node that is back")


def test_mpi_ranks_on_two_nodes_greet_each_other_in_a_train_job_and_in_an_mpi_job(stack: LocalStack) -> None:
    program = "from mpi4py.MPI import COMM_WORLD as all; print('sum:', all.allreduce(all.rank + 1))"
    hello = ["mpirun", "-n", "2", "python3", "-c", program]
    ours = manifests.train_job("hello", runtime="mpi-tcp", nodes=2, command=hello)
    theirs = manifests.mpi_job("hello-mpi", stack.training_image, nodes=2, command=hello)
    for body, condition in ((ours, "Complete"), (theirs, "Succeeded")):
        assert logs_of_completed(stack, body, condition).count("sum: 3") == 2


@pytest.fixture(scope="module")
def as_on_clouds(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A runtime whose image has the packages, on nodes that have this image; its pods mount none."""
    packages_inside.put_on(stack, sorted(SPOT), tmp_path_factory.mktemp("image"))
    runtime = stack.get("clustertrainingruntime", "torch-tcp")
    runtime["metadata"] = {"name": "torch-inside", "labels": runtime["metadata"]["labels"]}
    [replicated] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pod = replicated["template"]["spec"]["template"]["spec"]
    pod["volumes"] = [each for each in pod["volumes"] if each["name"] != names.TRAINING_ENV]
    [container] = pod["containers"]
    mounts = container["volumeMounts"]
    container["volumeMounts"] = [each for each in mounts if each["name"] != names.TRAINING_ENV]
    container["image"] = packages_inside.IMAGE
    assert len(container["volumeMounts"]) == len(mounts) - 1
    stack.apply(runtime)
    yield "torch-inside"
    stack.kubectl("delete", "clustertrainingruntime", "torch-inside")


def test_a_job_of_an_image_with_the_packages_trains_to_its_end(stack: LocalStack, as_on_clouds: str) -> None:
    settings = ["data.name=digits", "steps=5", f"run_dir={CHECKPOINTS}/inside/run-001"]
    command = ["python3", "-m", "trainyard_train.train", *(f"--set={each}" for each in settings)]
    body = manifests.train_job("inside", runtime=as_on_clouds, nodes=2, command=command)
    logs_of_completed(stack, body, "Complete", num_pods=2)
    assert stack.run_of("inside").step == 5
