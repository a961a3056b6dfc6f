"""Traces of a stack on the host (processes, namespaces, rules), which tests compare before and after."""

import subprocess
from dataclasses import dataclass, fields
from pathlib import Path

import psutil

from local.cluster import cgroups


@dataclass(frozen=True)
class Traces:
    """Everything of one stack on this host, except for its files.

    Other clusters may start and end while the tests run, so only what has our folder or cluster in its name
    counts; firewall rules have no names, so all count. A network namespace exists by a process or a mount.
    """

    processes: frozenset[str]
    mounts: frozenset[str]
    links: frozenset[str]
    routes: frozenset[str]
    cgroups: frozenset[str]
    rules: frozenset[str]

    @classmethod
    def of(cls, folder: Path, cluster: str) -> "Traces":
        """Return the traces on the host now."""
        link = f"ty-{cluster}"
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return cls(
            processes=frozenset(map(_described, processes_of(folder))),
            mounts=frozenset(line for line in mounts if str(folder) in line),
            links=frozenset(line for line in _lines("ip", "-oneline", "link") if f"{link}:" in line),
            routes=frozenset(line for line in _lines("ip", "route") if f" {link} " in line),
            cgroups=frozenset(_cgroups(cluster)),
            rules=frozenset([*_lines("nft", "list", "ruleset"), *_lines("iptables-legacy-save")]),
        )

    def beyond(self, before: "Traces") -> dict[str, list[str]]:
        """Return new traces by kind; empty if there are none."""
        new = {field.name: getattr(self, field.name) - getattr(before, field.name) for field in fields(self)}
        return {kind: sorted(found) for kind, found in new.items() if found}


def processes_of(folder: Path) -> list[psutil.Process]:
    """Return the processes that were started for this folder, without the test's process and its parents."""
    above = {psutil.Process().pid, *(parent.pid for parent in psutil.Process().parents())}
    return [
        process for process in psutil.process_iter() if process.pid not in above and _names(process, folder)
    ]


def _names(process: psutil.Process, folder: Path) -> bool:
    """Whether a live process has the folder in its command line or in its environment."""
    try:
        texts = [*process.cmdline(), *process.environ().values()]
        return process.status() != psutil.STATUS_ZOMBIE and any(str(folder) in text for text in texts)
    except psutil.Error:
        return False


def _described(process: psutil.Process) -> str:
    try:
        return f"{process.pid} {' '.join(process.cmdline())}"
    except psutil.Error:
        return f"{process.pid}, which ends"


def _cgroups(cluster: str) -> list[str]:
    """Return the cgroups of the cluster, and unused parents."""
    found = []
    for hierarchy in cgroups.hierarchies():
        top = hierarchy / cgroups.ROOT
        inside = [path.name for path in top.iterdir() if path.is_dir()] if top.exists() else [""]
        if not inside or cluster in inside:
            found.append(str(top / cluster))
    return found


def _lines(*command: str) -> list[str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # this firewall is not installed, so it has no rules
        return []
    return [line for line in done.stdout.splitlines() if not line.startswith("#")]
