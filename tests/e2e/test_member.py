"""The commands of a team's member, on a real cluster: by the member's context and rights alone."""

import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from engine.paths import REPOSITORY
from infra.errors import ExitCode, InputError, TrainyardError
from infra.stackfile import load_job
from tests.e2e.manifests import NAMESPACE, train_job
from tests.e2e.stack import SECONDS, LocalStack, job, overrides
from tests.e2e.tenants import Command, Person, command_of
from tests.processes import capture
from tests.wheels import wheel
from trainyard.jobs.forward import forward_port
from trainyard.jobs.manifest import manifest
from trainyard.stack.session import Session

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

JOB, RUN = "touched", "run-001"
VALUE = "swordfish-6021"


@pytest.fixture
def member(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "200")
    return command_of(Person(stack, "mei", "research"), monkeypatch)


@pytest.fixture(scope="module", autouse=True)
def submitted(stack: LocalStack) -> None:
    """A running job that would take minutes."""
    with stack.declared(job(JOB), overrides(steps=5000)):
        declared = load_job(stack.job_file)
    stack.apply(manifest(declared.model_copy(update={"runtime": "torch-tcp"}), RUN))


def state(member: Command, job: str = JOB) -> str:
    [found] = [each for each in json.loads(member("jobs", "-o", "json")) if each["name"] == job]
    return str(found["state"])


def test_a_member_sees_and_enters_a_running_job(stack: LocalStack, member: Command) -> None:
    stack.wait_until(lambda: state(member) == "running", "a running job")
    assert JOB in member("jobs")
    assert "research" in member("job", "queue")
    shell = in_a_pod(stack, "--rank", "1", "--", "sh", "-c", "hostname; cat; exit 7", given="typed")
    assert (shell.stdout, shell.returncode) == (f"{JOB}-node-0-1\ntyped", 7)


def in_a_pod(
    stack: LocalStack, *words: str, given: str = "", of: str = JOB
) -> subprocess.CompletedProcess[str]:
    """Run `trainyard shell` as the member, in a separate process, since it reads standard input."""
    command, environment = as_mei(stack, "shell", of)
    return capture([*command, *words], env=environment, input=given, timeout=SECONDS)


def as_mei(stack: LocalStack, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line of the member, and its environment."""
    program = str(Path(sys.prefix) / "bin" / "trainyard")
    command = [program, *words, "--context", "trial", "--stack", "unwritten"]
    return command, {**os.environ, "KUBECONFIG": str(stack.folder / "mei.kubeconfig")}


def test_a_member_gets_a_context_from_a_file_without_secrets(stack: LocalStack, tmp_path: Path) -> None:
    file, kubeconfig = tmp_path / "research.access.yaml", tmp_path / "kubeconfig"
    stack.trainyard("team", "access", "--team", "research", "--to", str(file))
    assert not {"client-key-data", "client-certificate-data", "token"} & set(file.read_text().split(":"))
    programs = Path(sys.prefix) / "bin"
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**stack.environment, "KUBECONFIG": str(kubeconfig), "PATH": path}
    jobs = ["jobs", "--context", f"{stack.name}-research", "--stack", "unwritten"]
    for words in (["team", "login", str(file)], jobs):
        done = capture([programs / "trainyard", *words], env=environment)
        assert done.returncode == 0, done.stderr
        assert "of research" in done.stdout if words[0] == "team" else JOB in done.stdout
    assert kubeconfig.stat().st_mode & 0o777 == 0o600


def test_all_of_a_running_job_is_in_one_archive(stack: LocalStack, member: Command, tmp_path: Path) -> None:
    stack.wait_until(lambda: stack.run_of(JOB, RUN).step > 0, "a first step")
    file = tmp_path / "touched.tar.gz"
    member("job", "bundle", JOB, "--to", str(file))
    with tarfile.open(file) as archive:
        found = {path.removeprefix(f"{JOB}/") for path in archive.getnames()}
        stacks = archive.extractfile(f"{JOB}/stacks/node-1.txt")
        assert stacks
        assert re.search(r"rank 1, process \d+\n(.*\n)*Thread 0x", stacks.read().decode())
    objects = {"trainjob.json", "jobset.json", "workload.json", "pods.json", "events.json"}
    assert {*objects, "logs/attempt-0/node-0.log", "stacks/node-0.txt", "stacks/node-1.txt"} <= found
    assert len(re.findall(r"^rank \d", member("job", "traces", JOB), re.MULTILINE)) == 2


@pytest.mark.usefixtures("member")
def test_a_port_of_a_job_answers_here(stack: LocalStack) -> None:
    serve = "exec python3 -m http.server 8123 --directory /tmp > /tmp/served 2>&1"
    in_a_pod(stack, "--", "sh", "-c", f"({serve}) & sleep 1")
    printed = io.StringIO()
    session = Session("unwritten", console=Console(file=printed, width=200), context="trial")
    threading.Thread(target=forward_port, args=(session, JOB, "0:8123", 0), daemon=True).start()
    stack.wait_until(lambda: "→" in printed.getvalue(), "a port that listens")
    address = printed.getvalue().split(" ")[0]
    stack.wait_until(lambda: answers(address), "an answer through the port")


def answers(address: str) -> bool:
    try:
        return httpx.get(f"http://{address}/", trust_env=False).is_success
    except httpx.HTTPError:
        return False


def test_another_team_sees_and_touches_nothing(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = command_of(Person(stack, "pia", "platform"), monkeypatch)
    assert JOB not in stranger("jobs")
    assert JOB not in stranger("job", "queue")
    others = (("shell", JOB), ("job", "forward", JOB, "80"), ("logs", JOB), ("pause", JOB), ("resume", JOB))
    for words in (*others, ("cancel", JOB)):
        with pytest.raises(InputError, match="there is none"):
            stranger(*words)


def test_a_paused_job_saves_and_continues_with_the_next_step(stack: LocalStack, member: Command) -> None:
    run = stack.run_of(JOB, RUN)
    stack.wait_until(lambda: run.step > 0, "a first step")
    assert "its 2 pods exited with their work saved" in member("pause", JOB)
    assert state(member) == "paused"
    assert "paused already" in member("pause", JOB)
    exiting = b"saving at the end of this step, then exiting"
    # The collector keeps what a node's pods write a moment later, on a busy machine seconds.
    last = (JOB, "--attempt", "0", "--node", "1")
    stack.wait_until(lambda: exiting in asked_logs(stack, *last).stdout, "the last lines of deleted pods")
    member("resume", JOB)
    stack.wait_until(lambda: len(run.nodes) == 2, "a second attempt")
    run.assert_no_checkpointed_step_was_lost()
    assert run.repeated_steps == []
    assert JOB in member("cancel", JOB)


PRINTS = r"""
trap 'exit 75' TERM
folder=/mnt/checkpoints/written attempt=0 number=0
mkdir -p $folder
until mkdir "$folder/$attempt-$PET_NODE_RANK" 2> /dev/null; do attempt=$((attempt + 1)); done
head -c 11000000 /dev/zero | tr '\0' "$attempt" | fold -w 20000 | tee "$folder/$attempt-$PET_NODE_RANK/out"
until [ -e $folder/stop ]; do
    number=$((number + 1))
    printf 'node %s says %s  \377\n' "$PET_NODE_RANK" $number | tee -a "$folder/$attempt-$PET_NODE_RANK/out"
    sleep 0.05
done
"""
"""Writes the same to the standard output and to a file; the kubelet rotates a log above 10 MiB."""
UNREAD = 10 * 20 * 22
"""Bytes of unread lines that may be lost with a node: ten seconds of lines, for a busy host."""
VERBOSE = "verbose"


@pytest.mark.soak
def test_all_output_of_the_ranks_is_retained_after_two_failed_nodes(
    stack: LocalStack, member: Command, tmp_path: Path
) -> None:
    written = stack.data / "checkpoints" / "research" / "written"
    stack.kubectl("delete", "trainjob", JOB, f"--namespace={NAMESPACE}", "--ignore-not-found")
    stack.apply(train_job(VERBOSE, runtime="torch-tcp", nodes=2, command=["/bin/sh", "-c", PRINTS]))
    failed = [node_of(stack, written, attempt=0), ""]
    follow, environment = as_mei(stack, "logs", VERBOSE, "-f", "--node", "1")
    # Into a file, since a command that writes to an unread pipe blocks.
    with (
        (tmp_path / "followed").open("w+b") as out,
        subprocess.Popen(follow, env=environment, stdout=out, stderr=subprocess.DEVNULL) as followed,
        ended_in_the_end(followed),
    ):
        stack.wait_until(lambda: has_rotated(stack, failed[0]), "a log that the kubelet has renamed")
        stack.trainyard("local", "preempt", failed[0], "--notice", "3")
        failed[1] = node_of(stack, written, attempt=1)
        stack.trainyard("local", "preempt", failed[0], "--return")
        last, first = (VERBOSE, "--attempt", "1", "--node", "0"), b"node 0 says 1 "
        stack.wait_until(lambda: first in asked_logs(stack, *last).stdout, "what was written at first")
        stack.trainyard("local", "preempt", failed[1], "--no-notice")
        node_of(stack, written, attempt=2)
        (written / "stop").touch()
        stack.wait_until(lambda: state(member, VERBOSE) == "complete", "the end of the job")
        stack.wait_until(lambda: followed.poll() is not None, "the end of what is followed")
    printed = (tmp_path / "followed").read_bytes()
    stack.trainyard("local", "preempt", failed[1], "--return")
    stack.kubectl("delete", "jobset", VERBOSE, "-n", NAMESPACE)
    assert followed.returncode == 0
    assert printed.count(b"node 1 says 1 ") == 3, "each attempt was followed"
    for attempt in range(3):
        for node in range(2):
            message = logs_of(stack, VERBOSE, "--attempt", str(attempt), "--node", str(node))
            wrote = (written / f"{attempt}-{node}" / "out").read_bytes()
            killed = attempt == 1 and node == 0
            # Unread lines in the log of a killed node are lost.
            assert len(wrote) - len(message) <= (UNREAD if killed else 0)
            assert hashlib.sha256(message).digest() == hashlib.sha256(wrote[: len(message)]).digest()
    assert b"node 1 | node 1 says 2 " in logs_of(stack, VERBOSE, "--attempt", "2")


@contextmanager
def ended_in_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Kill the process at the end, since a failed test would wait for it."""
    try:
        yield
    finally:
        process.kill()


def node_of(stack: LocalStack, written: Path, attempt: int) -> str:
    """Return where the first node of an attempt runs, once all its nodes have written enough."""
    files = [written / f"{attempt}-{node}" / "out" for node in range(2)]
    long = 11_010_000
    stack.wait_until(lambda: all(each.exists() and each.stat().st_size > long for each in files), "output")
    running = stack.get("pods", "-n", NAMESPACE, "--field-selector=status.phase=Running")["items"]
    staying = [pod for pod in running if "deletionTimestamp" not in pod["metadata"]]
    [pod] = [pod for pod in staying if pod["metadata"]["name"].startswith(f"{VERBOSE}-node-0-0-")]
    return str(pod["spec"]["nodeName"])


def has_rotated(stack: LocalStack, node: str) -> bool:
    logs = stack.run / "nodes" / node / "var" / "log" / "pods"
    return any(logs.glob(f"team-research_{VERBOSE}-node-0-0-*/node/0.log.2*"))


def asked_logs(stack: LocalStack, *words: str) -> subprocess.CompletedProcess[bytes]:
    command, environment = as_mei(stack, "logs", *words)
    return subprocess.run(command, env=environment, capture_output=True, timeout=SECONDS, check=False)


def logs_of(stack: LocalStack, *words: str) -> bytes:
    done = asked_logs(stack, *words)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_a_secret_is_written_and_seen_by_nobody(stack: LocalStack, member: Command) -> None:
    message = [member("team", "secret", "set", "HF_TOKEN", given=f"{VALUE}\n") for _ in range(2)]
    assert "Secret hf-token-v2" in message[1]
    assert VALUE not in "".join(message)
    with pytest.raises(Exception, match="you may not list them"):
        member("team", "secret", "ls")
    with pytest.raises(Exception, match="you may not delete them"):
        member("team", "secret", "rm", "HF_TOKEN")
    stack.kubectl("delete", "secret", "hf-token-v1", "hf-token-v2", "-n", NAMESPACE)


def test_a_job_that_cannot_start_gives_its_place_up_and_starts_once_it_can(
    stack: LocalStack, member: Command
) -> None:
    early = train_job("early", runtime="torch-tcp", nodes=1, command=["true"])
    late = {"secretKeyRef": {"name": "late", "key": "key"}}
    early["spec"]["trainer"]["env"] = [{"name": "KEY", "valueFrom": late}]
    stack.apply(early)
    stack.wait_until(lambda: "there is no Secret late" in member("jobs"), "its reason")
    stack.wait_until(lambda: state(member, "early") == "stopped", "its end")
    assert "there is no Secret late" in member("jobs")
    assert "CannotStart" in stack.kubectl("events", "-n", NAMESPACE, "--for", "trainjob/early")
    stack.wait_until(lambda: "early" not in " ".join(stack.names("pods", "-n", NAMESPACE)), "no pods of it")
    stack.kubectl("create", "secret", "generic", "late", "-n", NAMESPACE, "--from-literal=key=value")
    member("resume", "early")
    stack.wait_until(lambda: state(member, "early") == "complete", "its run")
    stack.kubectl("delete", "secret/late", "trainjob/early", "-n", NAMESPACE)


TRAIN = """
import json, os, pathlib, sys
import torch, torch.distributed as dist
import helper
dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
try:
    pathlib.Path("written").touch()
    read_only = False
except OSError:
    read_only = True
folder = pathlib.Path(os.environ["TRAINYARD_RUN_DIR"])
folder.mkdir(parents=True, exist_ok=True)
found = {
    "ranks": int(total),
    "argument": sys.argv[1],
    "helped": helper.NAME,
    "read_only": read_only,
    "agent": "TRAINYARD_AGENT" in os.environ,
    "origin": json.loads(os.environ["TRAINYARD_ORIGIN"]),
}
(folder / f"rank-{dist.get_rank()}.json").write_text(json.dumps(found))
print("all", int(total), "ranks", flush=True)
dist.barrier()
dist.destroy_process_group()
"""
MINE = "mine"
RUN_MINE = ("run", "--gpus", "2", "--nodes", "2", "--ranks-per-node", "2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's repository."""
    made = tmp_path_factory.mktemp("code")
    (made / "train.py").write_text(TRAIN)
    (made / "helper.py").write_text("NAME = 'helped'\n")
    (made / "notes.txt").write_text("not tracked\n")
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    for words in (("init",), ("add", "*.py"), (*who, "commit", "-m", "first")):
        subprocess.run(["git", *words], cwd=made, check=True, capture_output=True)
    return made


def trainjob(stack: LocalStack, name: str) -> dict[str, str]:
    found: dict[str, str] = stack.get("trainjob", "-n", NAMESPACE, name)["metadata"]["annotations"]
    return found


@pytest.mark.usefixtures("member")
def test_a_folder_runs_on_all_ranks_and_ctrl_c_leaves_it_running(stack: LocalStack, folder: Path) -> None:
    run_mine, environment = as_mei(stack, *RUN_MINE, "--name", MINE)
    handles_sigint = ("env", "--default-signal=INT")  # background processes and their children ignore it
    command = [*handles_sigint, *run_mine, "--", "python", "train.py", "7"]
    read: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=folder, env=environment, **read) as process:
        assert process.stdout and process.stderr
        message = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        assert process.wait(SECONDS) == 130, errors
    assert f"submitted {MINE} as run-" in message
    assert "not sent, since git does not track it: notes.txt" in errors
    assert "code to the team's store: done" in errors and "already in the team's store" not in errors
    assert f"{MINE} continues; follow it again: trainyard logs -f {MINE}" in errors
    run = stack.data / "checkpoints" / "research" / MINE / trainjob(stack, MINE)["trainyard.dev/run"]
    stack.wait_until(lambda: len(list(run.glob("rank-*.json"))) == 4, "four ranks")
    origin = json.loads(trainjob(stack, MINE)["trainyard.dev/origin"])
    assert origin["command"] == ["python", "train.py", "7"]
    assert len(origin["commit"]) == 40 and not origin["dirty"]
    expected = {"ranks": 4, "argument": "7", "helped": "helped", "read_only": True, "agent": True}
    for file in run.glob("rank-*.json"):
        assert json.loads(file.read_text()) == {**expected, "origin": origin}


def test_the_same_code_is_sent_once_and_followed_to_its_end(
    stack: LocalStack, member: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    stack.wait_until(lambda: "complete" in member("jobs"), "an end of the first")
    message = member("job", "rerun", MINE, "--name", "again")
    assert "submitted again as run-" in message
    assert trainjob(stack, "again")["trainyard.dev/origin"] == trainjob(stack, MINE)["trainyard.dev/origin"]
    (folder / "job.yaml").write_text("name: written\nnodes: 2\ncommand: [sh, -c, 'ls; exit 2']\n")
    with pytest.raises(TrainyardError, match="failed") as failed:
        member("run", "job.yaml")
    assert failed.value.exit_code is ExitCode.JOB_FAILED
    own, mine = (json.loads(trainjob(stack, job)["trainyard.dev/origin"]) for job in ("written", MINE))
    assert own["code"] == mine["code"], "job.yaml is not tracked"


def test_a_dry_run_prints_the_job_and_starts_nothing(
    stack: LocalStack, member: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    message = member(*RUN_MINE, "--name", "tried", "--dry-run", "--", "python", "train.py", "7")
    assert "kind: TrainJob" in message and "where  2 × 1 GPUs by queue gpu, runtime torch-tcp" in message
    assert "when   now to " in message and "price  spot: no machine is bought for it" in message
    assert "tried" not in member("jobs")
    with pytest.raises(InputError, match=r"spot of gpu \(2 simulated, 1 on a node, tcp, spot\)"):
        member("run", "--gpus", "8", "--dry-run", "--", "python", "train.py")


def test_boosted_trees_grow_on_two_nodes_of_a_package_that_comes_along(
    stack: LocalStack, member: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(REPOSITORY / "examples" / "xgboost" / "train.py", tmp_path)
    package = list((REPOSITORY / ".trainyard" / "peers").glob("xgboost*"))
    assert package, "make peers brings XGBoost"
    for each in package:
        shutil.copytree(each, tmp_path / "vendor" / each.name)
    monkeypatch.chdir(tmp_path)
    member("run", "--gpus", "2", "--nodes", "2", "--name", "trees", "--", "python", "train.py")
    assert "20 rounds on 2 ranks" in member("logs", "trees", "--rank", "0")
    run = trainjob(stack, "trees")["trainyard.dev/run"]
    assert (stack.data / "checkpoints" / "research" / "trees" / run / "trees.json").stat().st_size > 10_000


def test_a_batch_script_of_slurm_imports_packages_that_were_stored_once(
    stack: LocalStack, member: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheels").mkdir()
    wheel(tmp_path / "wheels", "alpha", "torch")
    (tmp_path / ".trainyardignore").write_text("wheels\n")
    prints = "import alpha, os; print(os.environ['SLURM_PROCID'], alpha.__file__)"
    script = f'#!/bin/bash\n#SBATCH -N2 -G2\nsrun python3 -c "{prints}"\nsrun alpha\n'
    (tmp_path / "a.sbatch").write_text(script)
    monkeypatch.chdir(tmp_path)
    for name, stored in (("slurm", "packages to the team's store"), ("again-slurm", "packages already in")):
        output = member("run", "--name", name, "--with", "wheels", "a.sbatch")
        assert stored in output and "1 package beyond the image" in output
        for node in range(2):
            assert f"node {node} | {node} /mnt/checkpoints/.trainyard/packages/" in output
            assert f"node {node} | alpha runs" in output
    assert "packages" in json.loads(trainjob(stack, "slurm")["trainyard.dev/origin"])


def test_a_failed_job_is_held_for_whoever_looks(
    stack: LocalStack, member: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    fails = "echo as it was >/dev/shm/left; exit 3"
    held = ("run", "--gpus", "1", "--name", "held", "--hold-on-failure", "5m", "--detach")
    member(*held, "--", "sh", "-c", fails)
    stack.wait_until(lambda: state(member, "held") == "held", "its end")
    assert "exit code 3; this pod is held for 300 s" in member("logs", "held")
    assert "failed with exit code 3 on " in member("jobs")
    assert in_a_pod(stack, "--", "cat", "/dev/shm/left", of="held").stdout == "as it was\n"
    member("cancel", "held")


def test_another_team_reruns_and_reads_nothing(stack: LocalStack, monkeypatch: pytest.MonkeyPatch) -> None:
    person = Person(stack, "pia", "platform")
    stranger = command_of(person, monkeypatch)
    with pytest.raises(InputError, match="there is none"):
        stranger("job", "rerun", MINE)
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    assert person.ask("GET", pods).status_code == 403
    [uploads] = stack.names("pods", "-n", NAMESPACE, "-l", "app.kubernetes.io/name=uploads")
    assert person.ask("POST", f"{pods}/{uploads}/exec").status_code == 403
