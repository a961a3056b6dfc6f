"""Finds the Python environment that a program's Pulumi.yaml names, and the packages and Pulumi plugins
installed in it.
"""

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

OWN_DISTRIBUTION = "trainyard"
OWN_PLUGIN = Path(__file__).resolve().parents[1] / "provider" / "pulumi-plugin.json"
PLUGIN_VIRTUALENV = "venv"
"""Default folder of a plugin's virtual environment, inside the plugin's folder, as with the official host."""


class ProgramEnvironmentError(Exception):
    """The environment cannot run a program; the text has the next step."""


@dataclass(frozen=True)
class RequiredPlugin:
    """A resource plugin that an installed package speaks to."""

    name: str
    version: str
    server: str


class ProgramEnvironment:
    """A virtual environment (`runtime.options.virtualenv`), or the machine's `python3`.

    The machine's is for programs alone, as with the official host: a plugin that names no virtual environment
    gets one in the plugin's folder, so that its packages are never installed into the host's Python.
    """

    def __init__(self, root: Path, options: Mapping[str, Any], *, is_plugin: bool = False) -> None:
        default = ".venv" if options.get("toolchain") == "uv" else PLUGIN_VIRTUALENV if is_plugin else ""
        name = options.get("virtualenv") or default
        self.root = root
        self.virtualenv: Path | None = root / name if name else None

    @property
    def exists(self) -> bool:
        """Whether the virtual environment has been made; True where there is none to make."""
        return self.virtualenv is None or (self.virtualenv / "bin" / "python").exists()

    @property
    def python(self) -> Path:
        """The interpreter. Raises ProgramEnvironmentError where there is none."""
        if self.virtualenv is None:
            return machine_python()
        if not self.exists:
            raise ProgramEnvironmentError(
                f"there is no virtual environment at {self.virtualenv} (runtime.options.virtualenv in "
                f"{self.root}); `pulumi install` makes it"
            )
        return self.virtualenv / "bin" / "python"

    def variables(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with the environment activated, and output unbuffered so that it streams."""
        activated = {**base, "PYTHONUNBUFFERED": "1"}
        if self.virtualenv is not None:
            activated["VIRTUAL_ENV"] = str(self.virtualenv)
            activated["PATH"] = f"{self.virtualenv / 'bin'}{os.pathsep}{base.get('PATH', '')}"
            activated.pop("PYTHONHOME", None)
        return activated

    def plugins(self) -> list[RequiredPlugin]:
        """The resource plugins that the installed packages declare, ours included."""
        found = []
        for path in self._plugin_files():
            declared = json.loads(path.read_text())
            if declared.get("resource"):
                version, server = declared.get("version") or "", declared.get("server") or ""
                found.append(RequiredPlugin(declared["name"], version.removeprefix("v"), server))
        return sorted(found, key=lambda plugin: plugin.name)

    def version_of(self, package: str) -> str:
        """The version of one installed package, empty for none; the metadata of all others remains unread."""
        return next((each.version for each in self._named(package)), "")

    def packages(self, *, transitive: bool) -> list[Distribution]:
        """Installed packages; without `transitive` only those that no other one requires."""
        required = set() if transitive else {name for each in self._distributions for name in _requires(each)}
        return [each for each in self._distributions if canonicalize_name(each.name) not in required]

    @cached_property
    def _site_packages(self) -> list[Path]:
        prefix = self.virtualenv or self.python.resolve().parent.parent
        folders = [*prefix.glob("lib/python3*/site-packages"), *prefix.glob("lib/python3*/dist-packages")]
        return sorted(folders)

    def _named(self, package: str) -> Iterable[Distribution]:
        return distributions(name=package, path=[str(path) for path in self._site_packages])

    @cached_property
    def _distributions(self) -> list[Distribution]:
        found = distributions(path=[str(path) for path in self._site_packages])
        unique = {canonicalize_name(each.name): each for each in found}
        return [unique[name] for name in sorted(unique)]

    def _plugin_files(self) -> Iterator[Path]:
        for folder in self._site_packages:
            yield from folder.glob("*/pulumi-plugin.json")
        # An editable install has no files of ours in site-packages.
        if any(self._named(OWN_DISTRIBUTION)):
            yield OWN_PLUGIN


def machine_python() -> Path:
    """The interpreter on PATH. Raises ProgramEnvironmentError where there is none."""
    found = shutil.which(os.environ.get("PULUMI_PYTHON_CMD", "python3"))
    if found is None:
        raise ProgramEnvironmentError("no python3 on PATH; set runtime.options.virtualenv in Pulumi.yaml")
    return Path(found)


def _requires(distribution: Distribution) -> Iterator[str]:
    # Requirements of extras do not count: an extra may name the package itself.
    for requirement in map(Requirement, distribution.requires or ()):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)
