"""Checks whether this host can run the embedded cluster (memory, kernel, artifacts), and renders the findings
together with those of others' checks, such as the cluster's. It changes nothing.
"""

import os
import platform
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil
from rich.console import Console
from rich.markup import escape

from engine.tables import PlainTable
from infra.errors import ExitCode, HostError, Problem
from local.toolchain.artifact import Action
from local.toolchain.toolchain import Toolchain

MEMORY_GIB = 6.0
"""Memory of a cluster with five nodes (3 GiB) and a two-process job."""

TRIAL_SECONDS = 20.0

_SYS_RESOURCE = 1 << 24
"""Bit of the capability to raise limits, as in linux/capability.h."""

_TRIALS = {
    "network namespaces, veth, bridge": "ip link add t0 type veth peer name t1 && ip link add t2 type bridge",
    "overlayfs": "mount -t tmpfs tmpfs /mnt && cd /mnt && mkdir a b c d && "
    "mount -t overlay overlay -o lowerdir=a,upperdir=b,workdir=c d",
    "nftables": "nft add table ip trial",
}
"""Kernel features that nodes need → command that tries them in temporary namespaces."""


class DoctorStatus(StrEnum):
    """The status of a finding."""

    OK = "ok"
    TODO = "to do"
    """State of an item that `trainyard up` will install or make."""
    PROBLEM = "problem"
    """State of an item that only the user can fix."""


@dataclass(frozen=True)
class DoctorFinding:
    """Result of one check."""

    area: str
    name: str
    state: DoctorStatus
    detail: str
    fix: str = ""


@dataclass(frozen=True)
class Diagnosis:
    """All findings, for users (`render`) and for scripts (`exit_code`)."""

    findings: tuple[DoctorFinding, ...]

    @property
    def exit_code(self) -> ExitCode:
        """HOST if a person has to do something first."""
        problems = any(finding.state is DoctorStatus.PROBLEM for finding in self.findings)
        return ExitCode.HOST if problems else ExitCode.OK

    def render(self, console: Console) -> None:
        """Print a table, and under it what to do about each problem."""
        colours = {DoctorStatus.OK: "green", DoctorStatus.TODO: "yellow", DoctorStatus.PROBLEM: "red"}
        table = PlainTable("", "what", "state", "detail")
        area = ""
        for finding in self.findings:
            state = f"[{colours[finding.state]}]{finding.state}[/]"
            shown = "" if finding.area == area else finding.area
            table.add_row(shown, escape(finding.name), state, escape(finding.detail))
            area = finding.area
        table.show(console)
        for finding in self.findings:
            if finding.state is DoctorStatus.PROBLEM:
                console.print(f"[red]{escape(finding.name)}[/]: {escape(finding.fix)}", soft_wrap=True)


def diagnose(
    toolchain: Toolchain,
    names: Iterable[str] | None = None,
    checks: Iterable[Callable[[], Iterable[Problem]]] = (),
    findings: Iterable[DoctorFinding] = (),
    *,
    runs_nodes: bool = True,
) -> Diagnosis:
    """Look at the host and at the artifacts behind `names` (all of them, if none are given).

    `checks` and `findings` are those of others, such as the cluster's for what an earlier run left behind.
    `runs_nodes`: whether the cluster's nodes run on this host, which only Linux can, as root.
    """
    others = (from_problem("cluster", problem) for check in checks for problem in check())
    nodes = _nodes() if runs_nodes else ()
    return Diagnosis((*_host(toolchain), *nodes, *_artifacts(toolchain, names), *findings, *others))


def _host(toolchain: Toolchain) -> Iterator[DoctorFinding]:
    yield DoctorFinding("host", "system", DoctorStatus.OK, f"{_system()}, {os.cpu_count()} cores")
    for folder in (toolchain.paths.cache, toolchain.paths.state):
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free_gib = shutil.disk_usage(there).free / 2**30
        yield DoctorFinding("host", str(folder), DoctorStatus.OK, f"{free_gib:.0f} GiB free")


def _system() -> str:
    try:
        release = platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:  # no Linux, or one without the file
        return f"{platform.platform(aliased=True, terse=True)}, {platform.machine()}"
    return f"{release}, Linux {platform.release()}, {platform.machine()}"


def _nodes() -> Iterator[DoctorFinding]:
    """What only the nodes of an embedded cluster need; the cluster's checks have privileges and cgroups."""
    if platform.system() != "Linux":
        return
    yield _memory()
    yield _locked_memory()
    if os.geteuid() == 0:
        for name, trial in _TRIALS.items():
            yield _trial(name, trial)


def _memory() -> DoctorFinding:
    gib = psutil.virtual_memory().available / 2**30
    state = DoctorStatus.OK if gib >= MEMORY_GIB else DoctorStatus.PROBLEM
    fix = f"the cluster and its job need {MEMORY_GIB:.0f} GiB: end other programs, or use a larger host"
    return DoctorFinding("host", "memory", state, f"{gib:.1f} GiB available", fix)


def _locked_memory() -> DoctorFinding:
    """Pods of the embedded cluster may lock as much: nothing that it runs needs more."""
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    effective = int(Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0], 16)
    if most == resource.RLIM_INFINITY or effective & _SYS_RESOURCE:
        return DoctorFinding("host", "locked memory", DoctorStatus.OK, "pods: no limit")
    return DoctorFinding(
        "host", "locked memory", DoctorStatus.OK, f"pods: {most // 2**20} MiB (no SYS_RESOURCE)"
    )


def _trial(name: str, script: str) -> DoctorFinding:
    try:
        subprocess.run(_namespaced(script), capture_output=True, text=True, timeout=TRIAL_SECONDS, check=True)
    except subprocess.TimeoutExpired:
        fix = "run `trainyard doctor` again when the host is less busy"
        return DoctorFinding(
            "kernel", name, DoctorStatus.PROBLEM, f"no answer within {TRIAL_SECONDS:g} s", fix
        )
    except subprocess.CalledProcessError as error:
        stderr_lines = error.stderr.strip().splitlines()[-1:] or [f"exit code {error.returncode}"]
        if error.returncode == 127:
            return DoctorFinding(
                "kernel", name, DoctorStatus.TODO, "cannot be tried before the Debian packages are installed"
            )
        fix = "load the kernel's module on the host (modprobe), or use another host"
        return DoctorFinding("kernel", name, DoctorStatus.PROBLEM, stderr_lines[0], fix)
    return DoctorFinding("kernel", name, DoctorStatus.OK, "tried")


def _namespaced(script: str) -> tuple[str, ...]:
    return ("unshare", "--net", "--mount", "sh", "-c", script)


def _artifacts(toolchain: Toolchain, names: Iterable[str] | None) -> Iterator[DoctorFinding]:
    steps = toolchain.plan(names)
    for step in steps:
        if step.action is Action.PRESENT:
            yield DoctorFinding("artifacts", step.name, DoctorStatus.OK, step.why)
        else:
            yield DoctorFinding("artifacts", step.name, DoctorStatus.TODO, f"{step.action}: {step.why}")
    try:
        toolchain.check(names)
    except HostError as error:
        yield from (from_problem("artifacts", problem) for problem in error.problems)


def from_problem(area: str, problem: Problem) -> DoctorFinding:
    """Return the finding of something that a person has to see to."""
    detail = f"{problem.got}; allowed: {problem.allowed}"
    return DoctorFinding(area, problem.path, DoctorStatus.PROBLEM, detail, problem.fix)
