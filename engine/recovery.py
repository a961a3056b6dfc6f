"""Cleans up after a killed engine: ends orphaned processes, finds stale locks, and settles pending operations
by looking their resources up.
"""

import json
import os
import re
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from engine.locks import hold, is_held
from infra.errors import Problem, TrainyardError

MARKER = "TRAINYARD_ENGINE"
"""Environment variable with the run's private folder, set for each engine that we start and inherited by its
plugins."""
MODULES = ("engine.provider", "engine.language_host", "pulumi.dynamic", "pulumi.policy")
_OWNER = "owner.lock"
"""File in a run's folder, whose lock the command holds."""
GRACE_SECONDS = 20.0
"""Seconds for an interrupted engine to finish running operations before SIGKILL."""


@contextmanager
def private_folder(engine: Path, stack: str) -> Iterator[Path]:
    """Make a run's temporary folder (0700), and delete it with all that plugins left in it.

    This process owns the folder and what runs in it; other commands spare both until it ends.
    """
    runs = engine / "runs"
    runs.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Hidden until it has its lock: others take a folder without one for that of a killed command.
    draft = Path(tempfile.mkdtemp(prefix=f".{stack}@", dir=runs))
    with hold(draft / _OWNER):
        folder = draft.rename(runs / draft.name[1:])
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def end_orphans(engine: Path, stack: str) -> None:
    """End the stack's engines and plugins whose command has ended, and delete their folders."""
    # An engine of another stack may be finishing its operations: a second interrupt would cut it off.
    prefix = f"{engine / 'runs' / stack}@"
    _end([process for process, run in _marked() if run.startswith(prefix) and not _is_owned(Path(run))])
    for folder in (engine / "runs").glob(f"{stack}@*"):
        if not _is_owned(folder):
            shutil.rmtree(folder, ignore_errors=True)


def end_run(folder: Path) -> None:
    """End what a killed engine of this process has left running."""
    _end([process for process, run in _marked() if run == str(folder)])


def delete_kubeconfigs(temporary: Path) -> None:
    """Delete what the Kubernetes provider has left of `pulumi` by hand, unless one is running."""
    if not any(variables.get("TMPDIR") == str(temporary) for _, variables in _parts()):
        for left in temporary.glob("kubeconfig*"):
            left.unlink(missing_ok=True)


def _is_owned(folder: Path) -> bool:
    return is_held(folder / _OWNER)


def _end(ours: Sequence[psutil.Process]) -> None:
    engines = [process for process in ours if _is_named(process, "pulumi")]
    for process in engines:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGINT)
    psutil.wait_procs(engines, GRACE_SECONDS)
    for process in ours:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(ours, GRACE_SECONDS)


def _is_named(process: psutil.Process, name: str) -> bool:
    """Whether the process has this name; a process that has just ended has none."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.name() == name)
    return False


_HOLDER = re.compile(
    r"created by (?P<username>\S*)@(?P<hostname>\S*) \(pid (?P<pid>\d+)\) at (?P<timestamp>\S+)"
)
"""A lock in the message of the engine that finds it."""


def locks_in(message: str) -> list[dict[str, Any]]:
    """Return the locks that the engine names."""
    return [found.groupdict() for found in _HOLDER.finditer(message)]


def holder_of(lock: Mapping[str, Any]) -> str:
    """Name a lock's engine."""
    return f"process {lock['pid']} of {lock['username']} on {lock['hostname']} since {lock['timestamp']}"


def is_dead_here(lock: Mapping[str, Any]) -> bool:
    """Whether the lock's engine was one of this host, and has ended."""
    return lock["hostname"] == socket.gethostname() and not _is_engine(int(lock["pid"]))


def is_stale(lock: Mapping[str, Any]) -> bool:
    """Whether the lock's engine is dead. Raises TrainyardError for a running one, here or elsewhere."""
    if is_dead_here(lock):
        return True
    fix = "wait for it, or end it and run the same command again"
    held = f"held by {holder_of(lock)}"
    raise TrainyardError([Problem("the stack's lock", held, "no other engine running on this stack", fix)])


@dataclass(frozen=True)
class Unfinished:
    """A creation that a killed engine began but did not record, or that a preview announces."""

    token: str
    """Type token: `aws:ec2/vpc:Vpc`."""
    name: str
    """Logical name."""
    inputs: Mapping[str, Any]
    begun: bool = True
    """False for a creation that a preview announces: parts of its inputs are unknown, and generated names
    differ from those of an existing resource."""


@dataclass(frozen=True)
class Found:
    """A resource that exists, and that the state does not have."""

    id: str
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """Inputs that differ from the program's: a name that the provider generated."""


Finder = Callable[[Unfinished], Found | None]
"""Function that searches the cloud for a resource that the state lacks; None where nothing was created."""


def settled(exported: str, find: Finder) -> tuple[str, list[str]]:
    """Return an exported stack with no pending operations, and the URNs of the found resources.

    Found resources are added to the state and have to be refreshed, since their outputs are not known. Others
    are created again: our own resources and Kubernetes objects adopt existing ones.
    """
    stack = json.loads(exported)
    deployment = stack["deployment"]
    found: list[str] = []
    for operation in deployment.pop("pending_operations", None) or ():
        resource = operation.get("resource") or {}
        if operation["type"] != "creating" or not resource.get("custom"):
            continue
        unfinished = Unfinished(
            resource["type"], resource["urn"].split("::", 3)[3], resource.get("inputs") or {}
        )
        made = find(unfinished)
        if made:
            outputs = resource.get("inputs")
            deployment["resources"].append({**resource, "id": made.id, "outputs": outputs})
            found.append(resource["urn"])
    return json.dumps(stack), found


def _marked() -> Iterator[tuple[psutil.Process, str]]:
    """Yield our engines and their plugins, each with the folder of its run."""
    for process, variables in _parts():
        if run := variables.get(MARKER):
            yield process, run


def _parts() -> Iterator[tuple[psutil.Process, Mapping[str, str]]]:
    """Yield each engine and plugin of this host with its environment."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != os.getpid() and _is_part(process.cmdline()):
                yield process, process.environ()


def _is_part(command: Sequence[str]) -> bool:
    """Whether a command is the engine's or a plugin's; processes that a plugin starts (a cluster) are not."""
    return any(Path(word).name.startswith("pulumi") or word in MODULES for word in command[:6])


def _is_engine(pid: int) -> bool:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        # A killed process retains its name until it is reaped, but not its arguments.
        return process.name() == "pulumi" and bool(process.cmdline())
    return False
