"""Installs the missing packages of an extra from the lock, before the first command that needs them. In an
environment other than Trainyard's own it refuses, and names the command that installs them.
"""

import importlib
import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from engine.paths import Paths
from engine.progress import Progress
from infra.errors import HostError, Problem
from local.locked import locked_versions

DISTRIBUTION = "trainyard"
_DISTRIBUTIONS = {
    "botocore": "boto3", "cyclonedx": "cyclonedx-python-lib", "google": "pulumi", "grpc": "pulumi",
    "numpy": "matplotlib",
}  # fmt: skip
"""Module → distribution of an extra that has or needs it, where their names differ."""
ALONE = "; if that would change packages of yours, `uv tool install` or `pipx install` it (docs/package.md)"
LINES_SHOWN = 6
"""Lines of the installation's output to show when it fails."""


@dataclass(frozen=True)
class Packages:
    """The packages of one extra of pyproject.toml, and the clone that has their lock."""

    extra: str
    paths: Paths

    def missing(self) -> list[Requirement]:
        """Return those that are not installed, or not in the version that is wanted."""
        locked = locked_versions(self.lock) if self.is_installable else {}
        required = (_locked(each, locked) for each in _required(self.extra))
        return [each for each in required if not _is_installed(each)]

    @property
    def lock(self) -> Path:
        return self.paths.repository / "requirements" / "host.txt"

    @property
    def is_installable(self) -> bool:
        """Whether the clone's script installs into the environment that this Python runs in.

        Without pip the script would create that environment again, under the running command.
        """
        is_own = Path(sys.prefix).resolve() == self.paths.venv.resolve()
        return is_own and self._script.exists() and self.lock.exists() and find_spec("pip") is not None

    @property
    def command(self) -> str:
        """The one command that installs them where this Python looks for packages."""
        if self.is_installable:
            return shlex.join([str(self._script), self.extra])
        if origin := _origin_of_tool():
            extras = ",".join(sorted({self.extra, *_installed_extras()}))
            return shlex.join(["uv", "tool", "install", f"{DISTRIBUTION}[{extras}] @ {origin}"])
        install = ["uv", "pip", "install", "--python", sys.executable]
        if not self.lock.exists():
            return shlex.join([*install, *map(_written, self._wanted)])
        locked = locked_versions(self.lock)
        pins = [_written(_locked(each, locked)) for each in self._wanted]
        return shlex.join([*install, "--require-hashes", "--constraints", str(self.lock), *pins])

    def ensure(self, progress: Progress) -> None:
        """Install missing packages, and report them. Costs milliseconds if none is missing.

        Raises:
            HostError: the packages cannot be installed from here; the problem has the command that does it.
        """
        missing = self.missing()
        if not missing:
            return
        if not self.is_installable:
            raise HostError([self.problem("not installed")])
        names = ", ".join(each.name for each in missing)
        progress.log(f"{names}: not installed; installing from requirements/{self.lock.name}")
        self._install(progress)
        importlib.invalidate_caches()
        if self.missing():
            raise HostError([self.problem(f"missing after {self.command}")])

    @classmethod
    def providing(cls, module: str, paths: Paths) -> "Packages | None":
        """Return the first extra with the distribution of a module that an import lacks."""
        top = module.partition(".")[0]
        distribution = canonicalize_name(_DISTRIBUTIONS.get(top, top))
        for extra in metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or ():
            if distribution in {canonicalize_name(each.name) for each in _required(extra)}:
                return cls(extra, paths)
        return None

    def problem(self, got: str) -> Problem:
        """Return the problem of packages that are missing, or cannot be imported."""
        names, command = ", ".join(map(_written, self._wanted)), self.command
        fix = f"{command}{ALONE}" if command.startswith("uv pip ") else command
        return Problem(f"packages of the extra `{self.extra}`", got, names, fix)

    @property
    def _wanted(self) -> Sequence[Requirement]:
        return self.missing() or _required(self.extra)

    @property
    def _script(self) -> Path:
        return self.paths.repository / "local" / "bootstrap.sh"

    def _install(self, progress: Progress) -> None:
        lines: list[str] = []
        command = [str(self._script), self.extra, "--verbose"]
        with (
            progress.task(f"packages/{self.extra}") as task,
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as running,
        ):
            assert running.stdout is not None
            for line in running.stdout:
                lines.append(line.strip())
                task.advanced(len(lines), text=lines[-1])
        if running.returncode:
            got = f"the installation failed ({running.returncode}): " + " ".join(lines[-LINES_SHOWN:])
            raise HostError([self.problem(got)])


def _required(extra: str) -> Sequence[Requirement]:
    """Return what an extra needs besides what every command needs, with the extras that it includes."""
    required = map(Requirement, metadata.requires(DISTRIBUTION) or ())
    found = [each for each in required if each.marker and each.marker.evaluate({"extra": extra})]
    included = [name for each in found if each.name == DISTRIBUTION for name in sorted(each.extras)]
    own = [each for each in found if each.name != DISTRIBUTION]
    return [*own, *(each for name in included for each in _required(name))]


def _origin_of_tool() -> str:
    """Return where `uv tool install` has this distribution from; empty where something else has installed it.

    The name alone is another project's on PyPI. The file is that of PEP 610.
    """
    if not (Path(sys.prefix) / "uv-receipt.toml").exists():
        return ""
    written = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    origin = json.loads(written or "{}")
    if (vcs := origin.get("vcs_info")) is None:
        return str(origin.get("url", ""))
    revision = vcs.get("requested_revision") or vcs["commit_id"]
    return f"{vcs['vcs']}+{origin['url']}@{revision}"


def _installed_extras() -> list[str]:
    """Return the extras whose packages are installed: `uv tool` would remove those that are not listed."""
    named = metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    return [each for each in named if all(map(_is_installed, _required(each)))]


def _locked(requirement: Requirement, versions: Mapping[str, str]) -> Requirement:
    version = versions.get(canonicalize_name(requirement.name))
    return Requirement(f"{requirement.name}=={version}") if version else requirement


def _is_installed(requirement: Requirement) -> bool:
    try:
        return requirement.specifier.contains(metadata.version(requirement.name), prereleases=True)
    except metadata.PackageNotFoundError:
        return False


def _written(requirement: Requirement) -> str:
    return f"{requirement.name}{requirement.specifier}"
