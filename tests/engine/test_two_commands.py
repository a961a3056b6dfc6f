"""Two commands at once, on one stack or on two of one state, with a fake `pulumi` that starts a plugin."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from engine.backends import FileBackend
from engine.engine import Engine
from engine.paths import REPOSITORY, Paths
from tests.engine.progress import RecordedProgress
from tests.processes import wait_for

FAKE = """#!{python}
import json, os, pathlib, subprocess, sys, time
run = "-".join([sys.argv[2], sys.argv[sys.argv.index("--stack") + 1]])
folder = pathlib.Path({folder!r})
plugin = subprocess.Popen([{plugin!r}, "600"])
seen = {{"engine": os.getpid(), "plugin": plugin.pid, "folder": os.environ["TMPDIR"]}}
(folder / f"{{run}}.fresh").write_text(json.dumps(seen))
(folder / f"{{run}}.fresh").rename(folder / f"{{run}}.json")
while (folder / f"{{run}}.waits").exists():
    time.sleep(0.05)
plugin.kill()
"""
COMMAND = (
    "import sys; from pathlib import Path; from tests.engine.test_two_commands import SharedState;"
    "SharedState(Path(sys.argv[1])).run(*sys.argv[2:])"
)


def lives(process: psutil.Process) -> bool:
    """Whether a process runs: an orphan that has ended remains until it is reaped."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@dataclass(frozen=True)
class EngineRun:
    """An operation of the fake engine."""

    engine: psutil.Process
    plugin: psutil.Process
    folder: Path

    @property
    def is_whole(self) -> bool:
        return lives(self.engine) and lives(self.plugin) and self.folder.is_dir()


class SharedState:
    """One state folder with the stacks `a` and `b`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = Paths(cache=folder / "cache", state=folder / "state", repository=folder / "repo")

    def make(self) -> None:
        stacks, programs = self.paths.repository / "stacks", self.folder / "programs"
        for needed in (stacks, self.paths.bin, programs):
            needed.mkdir(parents=True)
        (self.paths.repository / "Pulumi.yaml").write_text("name: tiny\nruntime: python\n")
        plugin = programs / "pulumi-resource-kubernetes"
        shutil.copy("/bin/sleep", plugin)
        fake = programs / "pulumi"
        fake.write_text(FAKE.format(python=sys.executable, folder=str(self.folder), plugin=str(plugin)))
        fake.chmod(0o755)
        for stack in ("a", "b"):
            state = FileBackend(self.paths.engine, "tiny").state_file(stack)
            state.parent.mkdir(parents=True, exist_ok=True)
            state.write_text('{"checkpoint": {"latest": {}}}')
            (stacks / f"Pulumi.{stack}.yaml").write_text("config: {}\n")

    def run(self, operation: str, stack: str) -> None:
        """Run an operation to its end."""
        path = f"{self.folder / 'programs'}{os.pathsep}{os.environ['PATH']}"
        engine = Engine(self.paths, {"PATH": path, "PULUMI_HOME": str(self.folder / "home")})
        getattr(engine, operation)(stack, RecordedProgress())

    @contextmanager
    def running(self, operation: str, stack: str) -> Iterator[tuple[subprocess.Popen[bytes], EngineRun]]:
        """Start a command, whose engine waits until the end of the `with` block."""
        report, waits = (self.folder / f"{operation}-{stack}.{end}" for end in ("json", "waits"))
        report.unlink(missing_ok=True)
        waits.touch()
        words = [sys.executable, "-c", COMMAND, str(self.folder), operation, stack]
        command = subprocess.Popen(words, cwd=REPOSITORY)
        try:
            wait_for(report.exists)
            seen = json.loads(report.read_text())
            engine, plugin = psutil.Process(seen["engine"]), psutil.Process(seen["plugin"])
            yield command, EngineRun(engine, plugin, Path(seen["folder"]))
        finally:
            waits.unlink()
            command.wait()


@pytest.fixture
def state(tmp_path: Path) -> SharedState:
    found = SharedState(tmp_path)
    found.make()
    return found


SECOND = pytest.mark.parametrize(("operation", "stack"), [("preview", "a"), ("up", "b"), ("destroy", "b")])


@SECOND
def test_a_second_command_spares_what_the_first_runs(state: SharedState, operation: str, stack: str) -> None:
    with state.running("up", "a") as (first, run):
        state.run(operation, stack)
        assert run.is_whole
    assert first.returncode == 0
    assert not run.folder.exists()


@SECOND
def test_after_a_kill_the_next_command_on_the_stack_cleans_up_and_spares_the_other(
    state: SharedState, operation: str, stack: str
) -> None:
    with state.running("up", "a") as (first, run):
        with state.running(operation, stack) as (second, killed):
            second.kill()
            wait_for(lambda: not lives(killed.engine))  # the kernel interrupts it
        assert lives(killed.plugin) and killed.folder.is_dir()
        state.run("preview", stack)
        assert not lives(killed.plugin) and not killed.folder.exists()
        assert run.is_whole
    assert first.returncode == 0
