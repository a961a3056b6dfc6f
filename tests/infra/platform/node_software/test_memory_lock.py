"""`raise_memory_lock.sh`, the daemon that raises the limit of locked memory, run in a process namespace."""

import os
import shutil
import sys
from pathlib import Path

import pytest

from infra.platform.node_software import memory_lock
from infra.platform.programs import program
from tests.processes import TIMEOUT_SECONDS, capture

LITTLE = 2**16
UNSHARED = [str(shutil.which("unshare")), "--fork", "--pid", "--mount-proc", "--kill-child"]
SCRIPT = program("raise_memory_lock.sh")
NODE = """
import contextlib, resource, subprocess, sys, time
little, script, programs = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
started = [subprocess.Popen([each, "600"]) for each in programs]
for each in started:
    resource.prlimit(each.pid, resource.RLIMIT_MEMLOCK, (little, hard))
daemon = subprocess.Popen(["/bin/sh", "-c", script])
def children():
    for each in open(f"/proc/{daemon.pid}/task/{daemon.pid}/children").read().split():
        with contextlib.suppress(OSError):
            yield open(f"/proc/{each}/comm").read().strip()
while daemon.poll() is None and "sleep" not in children():  # it sleeps after it has checked the processes
    time.sleep(0.02)
limits = [resource.prlimit(each.pid, resource.RLIMIT_MEMLOCK)[0] for each in started]
print(daemon.poll(), *(limit == hard for limit in limits))
"""
"""Starts processes with a low limit of locked memory, as on a node, and the daemon."""


def run(folder: Path, *names: str) -> tuple[list[str], str]:
    """Return the processes whose limit the daemon has raised, and its error output."""
    for name in names:
        shutil.copy(str(shutil.which("sleep")), folder / name)
    # The hard limit: only CAP_SYS_RESOURCE could raise it further.
    script = SCRIPT.replace(
        "--memlock=unlimited:unlimited", "--memlock=$(ulimit -H -l | awk '{print $1 * 1024}')"
    )
    if "unlimited" in capture(["sh", "-c", "ulimit -H -l"]).stdout:
        script = SCRIPT
    programs = [str(folder / name) for name in names]
    done = capture(
        [*UNSHARED, sys.executable, "-c", NODE, str(LITTLE), script, *programs],
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    return done.stdout.splitlines()[-1].split(), done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a namespace of processes, as nodes are one")
def test_only_the_limit_of_container_runtimes_is_raised(tmp_path: Path) -> None:
    names = ("containerd", "containerd-shim-runc-v2", "sshd")
    assert run(tmp_path, *names)[0] == ["None", "True", "True", "False"]


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a namespace of processes, as nodes are one")
def test_a_node_without_a_known_container_runtime_is_reported(tmp_path: Path) -> None:
    ended, output = run(tmp_path, "sshd")
    assert ended == ["1", "False"]
    assert "neither containerd nor crio is among the processes of this node" in output


def test_the_daemon_has_one_capability_and_no_path_of_the_node() -> None:
    pod = memory_lock.pod()
    [container] = pod["containers"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["SYS_RESOURCE"]}
    assert "volumes" not in pod
    assert "hostNetwork" not in pod
