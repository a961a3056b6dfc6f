"""A local stack of the tests, operated as a user does: by its stack file and the command line."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import psutil
import yaml

from engine.paths import REPOSITORY
from engine.recovery import MARKER
from local.cluster.processes import wait_until
from tests.patches import changed
from tests.processes import capture
from trainyard_train.contract import read_metrics

BARE, NAME, FAR = "e2e", "trial", "far"
"""A cluster without a stack, the one of most tests, and the one that a fleet joins to it."""
NETWORK = {"pod_cidr": "10.231.0.0/16", "service_cidr": "10.232.0.0/16", "node_cidr": "10.233.0.0/24"}
SECONDS = 600.0
"""Timeout of all waits: other clusters or builds may use the host at the same time."""
JOB = {"steps": 40, "pace_seconds": 0.15, "checkpoint.every_steps": 10}
"""Settings of the training job: long enough to be interrupted, short enough to wait for."""

Declaration = dict[str, Any]
Edit = Callable[[Declaration], object]


def job(name: str, *interruptions: dict[str, int | str]) -> Edit:
    """Return an edit that gives the job this name and these interruptions."""
    return patched({"job.name": name, "job.interruptions": list(interruptions)})


def patched(patch: Mapping[str, Any]) -> Edit:
    """Return an edit by paths (tests/patches.py)."""
    return lambda declaration: declaration.update(changed(declaration, patch))


def overrides(**settings: bool | float | str) -> Edit:
    """Return an edit that adds these settings to the job's program."""

    def edit(declaration: Declaration) -> None:
        declaration["settings"] |= settings

    return edit


@dataclass(frozen=True)
class CommandResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    errors: str

    @property
    def text(self) -> str:
        return self.out + self.errors

    @property
    def changes(self) -> dict[str, int]:
        """Return the numbers of resources by the engine's operation: `{"updated": 1, "unchanged": 159}`."""
        summary = re.search(r"^(?:up|preview|destroy) [\w-]+: (?:would be )?(.*) \(", self.out, re.MULTILINE)
        assert summary, self.text
        counts = [part.split() for part in summary[1].split(", ")]
        return {word: int(number) for number, word in counts}

    @property
    def changed(self) -> list[str]:
        """Return type and name of each resource that the engine changed, without components."""
        pattern = r"^(?:created|created replacement|updated|deleted|deleted replaced)\s+(\S+ \S+) [\d.]+ s$"
        found = re.findall(pattern, self.errors, re.MULTILINE)
        components = ("trainyard:infra:", "trainyard:platform:")
        return sorted(each for each in found if not each.startswith(components))


class Running:
    """A running command, with its output in files, which a kill does not truncate."""

    def __init__(self, arguments: list[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.with_suffix(".out").open("w") as out, log.with_suffix(".err").open("w") as errors:
            self.process = subprocess.Popen(
                arguments,
                env=environment,
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def errors(self) -> str:
        return self._log.with_suffix(".err").read_text()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until the condition holds; fail if the command ends before, or on a timeout."""
        reached = wait_until(lambda: condition() or self.process.poll() is not None, seconds=SECONDS)
        assert reached and self.process.poll() is None, f"no {what}: {self.errors}"

    def prints(self, pattern: str) -> None:
        """Wait until its output matches a pattern."""
        self.wait_for(lambda: re.search(pattern, self.errors) is not None, pattern)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def end(self, code: int | None = None) -> CommandResult:
        """Wait for its end; `code` is the expected exit code, if given."""
        self.process.wait(SECONDS)
        message = CommandResult(
            self.process.returncode, self._log.with_suffix(".out").read_text(), self.errors
        )
        assert code is None or message.code == code, f"exit code {message.code}: {message.text}"
        return message


class LocalStack:
    """The repository's local stack under another name, with separate ranges, state and stack files."""

    def __init__(self, folder: Path, *, name: str = NAME, wrap: tuple[str, ...] = ()) -> None:
        self.folder, self.name, self._wrap = folder, name, wrap
        self.state, self.stacks, self.temporary = folder / "state", folder / "stacks", folder / "tmp"
        for path in (self.stacks, self.temporary):
            path.mkdir(parents=True, exist_ok=True)
        self.environment = {
            **os.environ,
            "TRAINYARD_STATE": str(self.state),
            "TRAINYARD_STACKS": str(self.stacks),
            "TRAINYARD_STACK": name,
            "TMPDIR": str(self.temporary),
            "COLUMNS": "200",
        }
        self.kubeconfig = self.run / "admin.kubeconfig"
        self._number_of_commands = 0
        self.standing: tuple[Edit, ...] = ()
        """Edits of the stack file that apply until they are removed from here."""
        self.declare()

    @property
    def file(self) -> Path:
        return self.stacks / f"Pulumi.{self.name}.yaml"

    @property
    def job_file(self) -> Path:
        """Return the job file beside the stack file."""
        return self.stacks / f"{self.name}.job.yaml"

    @property
    def run(self) -> Path:
        """Return the folder of the cluster's processes."""
        return self.state / self.name / "run"

    @property
    def data(self) -> Path:
        """Return the folder of the data, which is retained by `down`."""
        return self.state / self.name / "data"

    @property
    def cluster_json(self) -> Path:
        """Return the copy of the cluster's configuration from when it was up."""
        return self.folder / "cluster.json"

    def declare(self, *edits: Edit) -> None:
        """Write the stack file and the job file: the repository's with the permanent edits and these.

        Edits find the job under `job`, and the settings of its program under `settings`.
        """
        text = (REPOSITORY / "stacks" / "Pulumi.local.yaml").read_text()
        document = yaml.safe_load(text)
        declaration: Declaration = document["config"]["trainyard:stack"]
        declaration["name"] = self.name
        declaration["target"]["network"] = dict(NETWORK)
        declaration["operators"] = {"unstartable": "20s"}
        job = yaml.safe_load((REPOSITORY / "stacks" / "local.job.yaml").read_text())
        declaration |= {"job": {**job, "interruptions": []}, "settings": dict(JOB)}
        for edit in (*self.standing, *edits):
            edit(declaration)
        job, settings = declaration.pop("job"), declaration.pop("settings")
        job["args"] = ["--config", "digits", *(f"--set={key}={value}" for key, value in settings.items())]
        self.job_file.write_text(yaml.safe_dump(job, sort_keys=False))
        self.file.write_text(yaml.safe_dump(document, sort_keys=False))

    @contextmanager
    def declared(self, *edits: Edit) -> Iterator[None]:
        """Edit the stack file and the job file within a `with` block."""
        self.declare(*edits)
        try:
            yield
        finally:
            self.declare()

    def start(self, *words: str) -> Running:
        """Start `trainyard …`."""
        self._number_of_commands += 1
        log = self.folder / f"{self._number_of_commands:02d}-{words[0]}"
        program = str(Path(sys.prefix) / "bin" / "trainyard")
        return Running([*self._wrap, program, *words], self.environment, log)

    def run_folder(self, folder: Path, name: str, program: str) -> str:
        """Run a program from a folder on two nodes to its end; return what is printed."""
        (folder / "train.py").write_text(program)
        words = ("run", "--team", "research", "--gpus", "2", "--nodes", "2", "--name", name)
        command = [f"{sys.prefix}/bin/trainyard", *words, "--", "python", "train.py"]
        done = capture(command, env=self.environment, cwd=folder)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def trainyard(self, *words: str, code: int = 0) -> CommandResult:
        """Run `trainyard …` to its end."""
        return self.start(*words).end(code)

    def by_hand(self, script: str) -> CommandResult:
        """Run a shell script in the environment that `trainyard stack env` prints."""
        prelude = f'eval "$({Path(sys.prefix)}/bin/trainyard stack env)"'
        command = ["bash", "-euc", f"{prelude}\n{script}"]
        done = capture(command, env=self.environment, cwd=REPOSITORY)
        message = CommandResult(done.returncode, done.stdout, done.stderr)
        assert message.code == 0, message.text
        return message

    def kubectl(self, *words: str, given: str = "") -> str:
        """Run kubectl as the administrator and return what it prints."""
        program = REPOSITORY / ".trainyard" / "bin" / "kubectl"
        done = capture([program, f"--kubeconfig={self.kubeconfig}", *words], input=given)
        assert done.returncode == 0, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout

    def get(self, *words: str) -> dict[str, Any]:
        """Read an object, or a list, as data."""
        found: dict[str, Any] = json.loads(self.kubectl("get", *words, "--output=json"))
        return found

    def names(self, *words: str) -> list[str]:
        """Names of the objects of a list, sorted."""
        return sorted(item["metadata"]["name"] for item in self.get(*words)["items"])

    def apply(self, *objects: Declaration) -> None:
        """Create the objects."""
        self.kubectl("apply", "--filename=-", given=yaml.safe_dump_all(objects))

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        found = wait_until(condition, seconds=SECONDS, poll_seconds=0.3)
        assert found, (
            f"never {what}:\n{self.kubectl('get', 'nodes,pods', '-A')}{self.kubectl('events', '-A')}"
        )

    @property
    def control(self) -> str:
        """Address of the control plane: API server and DNS."""
        return str(IPv4Network(NETWORK["node_cidr"])[1])

    def service(self, name: str, namespace: str) -> str:
        """Address of a Service."""
        return str(self.get("service", name, "-n", namespace)["spec"]["clusterIP"])

    def addresses(self, namespace: str, selector: str) -> list[str]:
        """Addresses of the pods with these labels that run."""
        pods = self.get("pods", "-n", namespace, "-l", selector, "--field-selector=status.phase=Running")
        return [pod["status"]["podIP"] for pod in pods["items"]]

    @property
    def training_image(self) -> str:
        """The image that training jobs of this stack run in."""
        runtime = self.get("clustertrainingruntime", "torch-tcp")
        [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
        return str(job["template"]["spec"]["template"]["spec"]["containers"][0]["image"])

    def wait_until_pod_ends(self, name: str, namespace: str = "team-research") -> None:
        def ended() -> bool:
            return self.get("pod", "-n", namespace, name)["status"]["phase"] in {"Succeeded", "Failed"}

        self.wait_until(ended, f"an end of pod {name}")

    def counted_restarts(self, job: str) -> int:
        """How many restarts of a job count as its faults."""
        status = self.get("jobset", "-n", "team-research", job)["status"]
        return int(status.get("restartsCountTowardsMax", 0))

    def run_of(self, job: str, run: str = "run-001") -> "TrainingRun":
        """A run of a job of the research team."""
        return TrainingRun(self.data / "checkpoints" / "research" / job / run)

    def engine_processes(self) -> list[psutil.Process]:
        """The engine at work for this stack, and its plugins."""
        runs = f"{self.state / 'pulumi' / 'runs' / self.name}@"
        processes = psutil.process_iter()
        return [each for each in processes if _environment(each).get(MARKER, "").startswith(runs)]


@dataclass(frozen=True)
class TrainingRun:
    """The files of a training run on the checkpoint volume."""

    folder: Path

    @property
    def lines(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder / "metrics.jsonl")

    @property
    def step(self) -> int:
        """Return the last logged step; 0 before the first."""
        return max((line["step"] for line in self.lines if line["event"] == "step"), default=0)

    @property
    def sha256(self) -> str:
        """Hash of the final weights."""
        return str(json.loads((self.folder / "final.json").read_text())["sha256"])

    @property
    def nodes(self) -> list[list[str]]:
        """Return the nodes of each attempt."""
        return [line["nodes"] for line in self.lines if line["event"] in {"started", "resumed"}]

    @property
    def resumed_at(self) -> int:
        """Return the step that the last attempt resumed from."""
        return int([line["step"] for line in self.lines if line["event"] in {"started", "resumed"}][-1])

    @property
    def repeated_steps(self) -> list[int]:
        """Steps that were computed more than once."""
        steps = [line["step"] for line in self.lines if line["event"] == "step"]
        return sorted({step for step in steps if steps.count(step) > 1})

    def assert_no_checkpointed_step_was_lost(self) -> None:
        """Assert that every attempt resumed from the newest checkpoint that was committed before."""
        committed = 0
        for line in self.lines:
            if line["event"] == "checkpoint":
                committed = line["step"]
            if line["event"] in {"started", "resumed"}:
                assert line["step"] >= committed, self.lines


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:
        return {}
