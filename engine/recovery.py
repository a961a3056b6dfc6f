"""Cleans up after a killed engine: ends orphaned processes, finds stale locks, and settles pending operations
by looking their resources up.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from infra.errors import Problem, TrainyardError

MARKER = "TRAINYARD_ENGINE"
"""Environment variable with the engine's folder, set for each engine that we start and inherited by its
plugins."""
MODULES = ("engine.provider", "engine.language_host", "pulumi.dynamic", "pulumi.policy")
GRACE_SECONDS = 20.0
"""Seconds for an interrupted engine to finish running operations before SIGKILL."""


def temporary(folder: Path) -> Path:
    """Return the parent of the runs' private folders, in which the Kubernetes provider leaves kubeconfigs."""
    return folder / "runs"


def end_orphans(folder: Path) -> None:
    """End engines and plugins of ours whose command has ended; the caller holds the stack's lock."""
    ours = list(_left_running(folder))
    engines = [process for process in ours if _is_named(process, "pulumi")]
    for process in engines:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGINT)
    psutil.wait_procs(engines, GRACE_SECONDS)
    for process in ours:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(ours, GRACE_SECONDS)
    shutil.rmtree(temporary(folder), ignore_errors=True)


def _is_named(process: psutil.Process, name: str) -> bool:
    """Whether the process has this name; a process that has just ended has none."""
    with suppress(psutil.NoSuchProcess):
        return bool(process.name() == name)
    return False


def is_stale(lock: dict[str, Any]) -> bool:
    """Whether the lock's engine is dead. Raises TrainyardError for a running one, here or elsewhere."""
    pid = int(lock["pid"])
    if lock["hostname"] == socket.gethostname() and not _is_engine(pid):
        return True
    holder = f"process {pid} of {lock['username']} on {lock['hostname']} since {lock['timestamp']}"
    raise TrainyardError(
        [
            Problem(
                "the stack's lock",
                f"held by {holder}",
                "no other engine running on this stack",
                "wait for it, or end it and run the same command again",
            )
        ]
    )


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


def _left_running(folder: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            marked = process.environ().get(MARKER) == str(folder)
            if marked and _is_part(process.cmdline()) and process.pid != os.getpid():
                yield process


def _is_part(command: Sequence[str]) -> bool:
    """Whether a command is the engine's or a plugin's; processes that a plugin starts (a cluster) are not."""
    return any(Path(word).name.startswith("pulumi") or word in MODULES for word in command[:6])


def _is_engine(pid: int) -> bool:
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        # A killed process retains its name until it is reaped, but not its arguments.
        return process.name() == "pulumi" and bool(process.cmdline())
    return False
