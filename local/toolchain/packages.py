"""Installs the Debian packages that `versions.yaml` names, without starting their services."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from engine.progress import Progress, Task
from infra.errors import Problem
from local.toolchain.artifact import Action, Artifact, Lane, PlanStep
from local.toolchain.process import ProcessRunner
from local.toolchain.search import find_on_path
from local.toolchain.versions import DebianPackage

POLICY = Path("/usr/sbin/policy-rc.d")
"""Script that Debian's packages call before they start a service (policy-rc.d(8)); 101 forbids the start."""

_POLICY_TEXT = "#!/bin/sh\n# Trainyard: packages that are being installed start nothing.\nexit 101\n"
_LOCK_SECONDS = 300


class DebianPackages(Artifact):
    """Debian packages of one purpose, in one installation; existing ones are not changed."""

    lane = Lane.NETWORK
    disk_mib = 600

    def __init__(
        self,
        packages: Mapping[str, DebianPackage],
        *,
        runner: ProcessRunner,
        progress: Progress,
        kind: str = "package",
    ) -> None:
        """`kind` begins their names in the toolchain, which are `KIND/NAME`."""
        self.name = f"{kind}s"
        self._kind = kind
        self._packages = packages
        self._runner = runner
        self._progress = progress

    @property
    def provides(self) -> tuple[str, ...]:
        return tuple(f"{self._kind}/{name}" for name in self._packages)

    def plan(self) -> PlanStep:
        missing = self._missing()
        if not missing:
            return PlanStep(self.name, Action.PRESENT, f"{len(self._packages)} Debian packages")
        return PlanStep(self.name, Action.INSTALL, f"by apt-get: {', '.join(missing)}")

    def problems(self) -> list[Problem]:
        missing = self._missing()
        got = f"{', '.join(missing)} missing"
        if not missing:
            return []
        if shutil.which("apt-get") is None:
            programs = ", ".join(self._packages[name].provides for name in missing)
            return [
                Problem(self.name, got, "Debian or Ubuntu", f"provide these on PATH yourself: {programs}")
            ]
        if os.geteuid() != 0:
            fix = f"run as root, or: sudo apt-get install --no-install-recommends {' '.join(missing)}"
            return [Problem(self.name, f"{got}, user {os.geteuid()}", "root, to install them", fix)]
        return []

    def make(self, task: Task) -> None:
        missing = self._missing()
        if not missing:
            return
        self._progress.log(f"installing Debian packages: {', '.join(missing)}")
        apt = ("apt-get", "-o", f"DPkg::Lock::Timeout={_LOCK_SECONDS}", "-q", "-y")
        with _no_service_starts():
            self._apt([*apt, "update"], task)
            self._apt([*apt, "install", "--no-install-recommends", *missing], task)
        self._disable_services(missing)

    def paths(self) -> Mapping[str, Path]:
        paths = {name: _path_of(package) for name, package in self._packages.items()}
        return {f"{self._kind}/{name}": path or Path() for name, path in paths.items()}

    def _missing(self) -> list[str]:
        return [name for name, package in self._packages.items() if _path_of(package) is None]

    def _apt(self, command: Sequence[str], task: Task) -> None:
        self._runner.run(
            command,
            what=" ".join(command[-1:]),
            environ={"DEBIAN_FRONTEND": "noninteractive"},
            on_line=lambda line: task.advanced(0, None, line),
        )

    def _disable_services(self, installed: Sequence[str]) -> None:
        """Keep the services of what we installed from starting at the next boot."""
        if shutil.which("systemctl") is None:
            return
        for service in [service for name in installed for service in self._packages[name].services]:
            self._runner.run(["systemctl", "disable", service], what=f"disable the service {service}")


def _path_of(package: DebianPackage) -> Path | None:
    wanted = Path(package.provides)
    if wanted.is_absolute():
        return wanted if wanted.exists() else None
    return find_on_path(package.provides)


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Forbid service starts while packages are installed; an existing policy of the host
    remains.
    """
    if POLICY.exists() and POLICY.read_text() != _POLICY_TEXT:
        yield
        return
    POLICY.write_text(_POLICY_TEXT)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink(missing_ok=True)
