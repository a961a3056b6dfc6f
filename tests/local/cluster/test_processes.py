"""The cluster's processes: found by identity, ended, and supervised by an init process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from local.cluster import init, processes
from local.cluster.processes import wait_until
from tests.processes import wait_for

SLEEP = "import sys, time; time.sleep(600)"


def started(identity: Path) -> psutil.Process:
    processes.start([sys.executable, "-c", SLEEP, str(identity)], os.environ, identity.parent / "log")
    wait_for(lambda: processes.find(identity))
    return processes.find(identity)[0]


@pytest.fixture
def identity(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "machine.json"
    yield path
    processes.end(path)


def test_a_process_is_found_by_its_identity_and_by_no_other(identity: Path) -> None:
    process = started(identity)
    assert processes.find(identity) == [process]
    assert processes.find(identity.with_name("other.json")) == []


def test_the_program_of_a_process_is_the_one_that_it_runs_now(identity: Path) -> None:
    """A machine's init is first a fork of `unshare`, whose name was once cached as its program."""
    go = identity.with_name("go")
    become = f'while [ ! -e {go} ]; do sleep 0.02; done; exec {sys.executable} -c "{SLEEP}" "$1"'
    processes.start(["/bin/sh", "-c", become, "sh", str(identity)], os.environ, identity.parent / "log")
    python = str(Path(sys.executable).resolve())
    wait_for(lambda: processes.find(identity))
    process = processes.find(identity)[0]
    assert processes.program_of(process) != python
    go.touch()
    wait_for(lambda: processes.program_of(process) == python)


def test_a_process_that_was_started_has_a_separate_session(identity: Path) -> None:
    assert os.getsid(started(identity).pid) != os.getsid(0)


def test_only_processes_with_the_identity_are_ended(identity: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    other_process, process = started(other), started(identity)
    processes.end(identity)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    assert processes.find(other) == [other_process]
    processes.end(other)


def test_a_reused_process_id_is_never_signalled(identity: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", SLEEP])
    reused = psutil.Process(stranger.pid)
    before = (reused.pid, reused.create_time() - 100)  # an earlier process with this ID
    monkeypatch.setattr(reused, "_ident", before)
    monkeypatch.setattr(processes, "find", lambda _: [reused])
    processes.end(identity)
    assert stranger.poll() is None
    monkeypatch.undo()
    stranger.kill()
    stranger.wait()


def test_a_wait_times_out() -> None:
    assert not wait_until(lambda: False, seconds=0.2, poll_seconds=0.05)


class TestInit:
    """The supervisor of a node's daemons, without namespaces."""

    @pytest.fixture
    def file(self, tmp_path: Path) -> Iterator[Path]:
        path = tmp_path / "machine.json"
        yield path
        for process in [child for p in processes.find(path) for child in p.children()]:
            process.kill()
        processes.end(path)

    def boot(self, file: Path, script: str, after: str = "") -> None:
        daemon = {
            "name": "daemon",
            "argv": ["/bin/sh", "-c", script],
            "env": {},
            "after": after,
            "log": str(file.with_name("daemon.log")),
        }
        spec = {"mounts": [], "folders": [], "sysctls": {}, "daemons": [daemon]}
        file.write_text(json.dumps(spec))
        argv = [sys.executable, "-I", "-S", init.__file__, str(file)]
        processes.start(argv, os.environ, file.with_name("init.log"))

    def test_a_daemon_that_ends_is_restarted_after_a_delay(self, file: Path) -> None:
        log = file.with_name("daemon.log")
        begin = time.time()
        self.boot(file, "date +%s.%N")
        wait_for(lambda: log.exists() and len(log.read_text().split()) >= 2)
        assert float(log.read_text().split()[1]) - begin >= init.RESTART_SECONDS

    def test_a_daemon_waits_for_its_file(self, file: Path, tmp_path: Path) -> None:
        log, gate = file.with_name("daemon.log"), tmp_path / "gate"
        self.boot(file, "echo started; exec sleep 600", after=str(gate))
        wait_for(lambda: processes.find(file))
        time.sleep(0.3)
        assert not log.exists()
        gate.touch()
        wait_for(lambda: log.exists() and log.read_text() == "started\n")
