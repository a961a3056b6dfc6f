"""`Arena`: runs `trainyard` and `kubectl` on a local stack with a separate state folder, and measures the
time to a job's first step. `arena()` yields one, and takes its cluster down at the end.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from engine.paths import REPOSITORY, Paths
from engine.progress import PlainProgress
from infra.stackfile import JobSpec, load_job
from trainyard.stack.session import Session
from trainyard_train.contract import FILE, read_metrics

JOB_FILE = REPOSITORY / "stacks" / "local.job.yaml"
STEP_SECONDS = 600.0
"""Seconds after which a benchmark gives up waiting for a step."""


@dataclass(frozen=True)
class Arena:
    """One state folder."""

    state: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TRAINYARD_STATE": str(self.state)}

    @cached_property
    def session(self) -> Session:
        """The local stack, with its state here."""
        return Session("local", replace(Paths.from_environment(), state=self.state))

    @cached_property
    def job(self) -> JobSpec:
        """The demo's job, in a runtime that it names: some arms have nothing that would choose one."""
        return load_job(JOB_FILE).model_copy(update={"runtime": "torch-tcp"})

    def trainyard(self, *arguments: str) -> float:
        """Run the command line to its end; return the seconds.

        Raises:
            RuntimeError: the command failed; the message has the end of its output.
        """
        started = time.monotonic()
        command = [str(self.session.paths.venv / "bin" / "trainyard"), *arguments]
        with (self.state / "log").open("ab") as log:
            code = subprocess.run(
                command, env=self.environment, check=False, stdout=log, stderr=log
            ).returncode
        if code:
            output = (self.state / "log").read_text(errors="replace").splitlines()[-30:]
            raise RuntimeError("\n".join((f"trainyard {' '.join(arguments)}: exit code {code}", *output)))
        return time.monotonic() - started

    @property
    def kubectl_command(self) -> list[str]:
        """First words of an administrator's kubectl command."""
        return [str(self.session.paths.bin / "kubectl"), f"--kubeconfig={self.session.kubeconfig}"]

    def kubectl(self, *arguments: str, given: str = "") -> str:
        """Run kubectl to its end; return what it prints.

        Raises:
            subprocess.CalledProcessError: it failed, and has printed why.
        """
        command = [*self.kubectl_command, *arguments]
        return subprocess.run(command, check=True, text=True, input=given, stdout=subprocess.PIPE).stdout

    def first_step_after(self, moment: float, attempt: int = 1) -> float:
        """Wait for the first step of that attempt after `moment` (Unix seconds); return the seconds between.

        Raises:
            TimeoutError: no such step came in time.
        """
        deadline = time.monotonic() + STEP_SECONDS
        while time.monotonic() < deadline:
            for file in (self.state / "local" / "data" / "checkpoints").glob(f"*/*/*/{FILE}"):
                for line in read_metrics(file):
                    if line["event"] == "step" and line["time"] > moment and line["attempt"] >= attempt:
                        return float(line["time"]) - moment
            time.sleep(0.1)
        raise TimeoutError(f"no step within {STEP_SECONDS:.0f} s; see {self.state / 'log'}")


@contextmanager
def arena() -> Iterator[Arena]:
    """Open a state folder, and take everything down in the end."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-", dir="/var/tmp") as folder:
        bench = Arena(Path(folder))
        try:
            yield bench
        finally:
            bench.trainyard("down", "--purge")


def quiet() -> PlainProgress:
    """A progress display without output."""
    return PlainProgress(Path(os.devnull).open("w"))
