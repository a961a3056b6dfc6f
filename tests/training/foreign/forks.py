"""A process that has imported what foreign programs import, and forks to start each program.

The imports take most of such a program's time. The fork then runs the program as `python FILE` would.
"""

import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.training import hold

_IMPORTED = [
    "trl.trainer.sft_trainer",
    "trl.trainer.dpo_trainer",
    "transformers.models.llama.modeling_llama",
    "evaluate",
    "lightning.pytorch",
    "trainyard_train.integrations.lightning",
    "trainyard_train.integrations.transformers",
]


@dataclass
class ForkedProgram:
    """A program that a fork runs, with those methods of `subprocess.Popen` that tests use."""

    pid: int
    exit_file: Path

    def poll(self) -> int | None:
        return int(self.exit_file.read_text()) if self.exit_file.exists() else None

    def wait(self, timeout: float) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("a forked program", timeout)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class Forks:
    """Starts programs; `close` ends all that still run."""

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "tests.training.foreign.forks"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(command, env=environment, text=True, bufsize=1, **pipes)

    def start(
        self, program: Path, arguments: Sequence[str], log: Path, variables: Mapping[str, str] | None = None
    ) -> ForkedProgram:
        """Run a program in its folder; its output is appended to a log."""
        assert self._process.stdin
        assert self._process.stdout
        request: dict[str, Any] = {"program": str(program), "arguments": [*arguments], "log": str(log)}
        request["variables"] = dict(variables or {})
        self._process.stdin.write(json.dumps(request) + "\n")
        pid = int(self._process.stdout.readline())
        return ForkedProgram(pid, _exit_file(log, pid))

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _exit_file(log: Path, pid: int) -> Path:
    return log.with_name(f"{log.name}.{pid}")


def _serve() -> dict[str, Any]:
    """Fork for each request; returns only in the fork, with the request."""
    logs: dict[int, Path] = {}
    while True:
        ready, *_ = select.select([sys.stdin.fileno()], [], [], 0.02)
        with suppress(ChildProcessError):
            _note_ended(logs)
        if not ready:
            continue
        line = sys.stdin.readline()
        if not line:
            for pid in logs:
                os.kill(pid, signal.SIGKILL)
            os._exit(0)
        request: dict[str, Any] = json.loads(line)
        if not (pid := os.fork()):
            return request
        logs[pid] = Path(request["log"])
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


def _note_ended(logs: dict[int, Path]) -> None:
    while (found := os.waitpid(-1, os.WNOHANG))[0]:
        pid, status = found
        file = _exit_file(logs.pop(pid), pid)
        staged = file.with_name(f"{file.name}.tmp")
        staged.write_text(str(os.waitstatus_to_exitcode(status)))
        staged.rename(file)


def _become(request: dict[str, Any]) -> str:
    """Set this process up as `python FILE ARGUMENT...` would; return the file."""
    program = Path(request["program"])
    os.environ.update(request["variables"])
    os.chdir(program.parent)
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(log, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), sys.stdin.fileno())
    sys.argv = [program.name, *request["arguments"]]
    sys.path[0] = str(program.parent)
    return program.name


if __name__ == "__main__":
    for name in _IMPORTED:
        import_module(name)
    hold.install()
    runpy.run_path(_become(_serve()), run_name="__main__")
