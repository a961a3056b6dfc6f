"""Installs what a component's target needs (its SDK, charts, helm), and checks whether this host can run an
embedded cluster.

All downloads are verified by digest: packages by the locks' hashes, charts by go.sum, releases by their
publishers' checksums. If everything is installed, this costs a few file look-ups.
"""

import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pulumi
from packaging.requirements import Requirement

from engine.paths import Paths
from infra.common.artifacts import Artifacts
from infra.common.target_registry import target_of
from infra.errors import HostError, Problem
from infra.stackfile import Stack
from infra.targets.target import Target
from local.locked import entries
from trainyard.stack.host import check_host
from trainyard.stack.parts import CHART_PARTS, CLUSTER_PARTS, host_parts

LOCK = "requirements/host.txt"
OF_REHEARSALS = frozenset({"google-api-python-client", "moto"})
"""Packages of extras that only a rehearsal needs."""
Log = Callable[[str], None]
LINES_SHOWN = 6
"""Lines of an installation's output to show when it fails."""


def warn_or_refuse_host(stack: Stack, *, must_fit: bool) -> None:
    """Look for what would keep an embedded cluster from starting here; a preview may be made elsewhere.

    Raises HostError with all problems if the stack `must_fit`, before anything is declared; else it warns.
    """
    try:
        check_host(stack, Paths.from_environment())
    except HostError as error:
        problems = [replace(each, path=_as_input(each.path)) for each in error.problems]
        if must_fit:
            raise HostError(problems) from None
        for problem in problems:
            pulumi.log.warn(f"`pulumi up` on this host will be refused: {problem}")


def _as_input(path: str) -> str:
    """Return a stack file's path in the form of the component's input."""
    return f"stack.{path}" if path == "name" or path.startswith("target.") else path


def provide(stack: Stack, log: Log, *, is_preview: bool) -> Artifacts:
    """Install missing dependencies, and report them. Raises HostError for unavailable ones.

    `up` repairs what is damaged too; a preview does not read all of it (38,000 files in the training
    environment alone), and only checks whether it exists.
    """
    target, paths = target_of(stack.target.kind), Paths.from_environment()
    _provide_sdk(target, paths, log)
    os.environ["PATH"] = f"{paths.bin}{os.pathsep}{os.environ.get('PATH', '')}"
    if not _has_charts(paths.bin.parent) or stack.target.on_host is not None:
        _provide_parts(stack, target, paths, log, is_preview=is_preview)
    return Artifacts.from_environment()


def _provide_sdk(target: Target, paths: Paths, log: Log) -> None:
    try:
        target.cluster_class()
    except ModuleNotFoundError:
        names = _sdk_packages(paths.repository / "pyproject.toml", target.packages)
        log(f"the SDK of {target.kind} is not installed: installing {', '.join(names)} from {LOCK}")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
            pins.write(entries(paths.repository / LOCK, *names))
            pins.flush()
            command = _install(pins.name)
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            got = " ".join((ended.stdout + ended.stderr).splitlines()[-LINES_SHOWN:])
            fix = "look at the package index and pip's settings, and run it again"
            raise HostError([Problem(f"SDK of {target.kind}", got, ", ".join(names), fix)]) from None
        importlib.invalidate_caches()
        target.cluster_class()


def _sdk_packages(project_file: Path, extra: str) -> list[str]:
    project = tomllib.loads(project_file.read_text())["project"]
    names = [Requirement(each).name for each in project["optional-dependencies"][extra]]
    return [name for name in names if name not in {project["name"], *OF_REHEARSALS}]


def _install(lock: str) -> list[str]:
    """Return the command that installs a lock where this Python looks for packages."""
    if find_spec("pip") is not None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    else:
        pip = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", sys.executable]
    return [*pip, "--no-deps", "--require-hashes", "-r", lock]


def _has_charts(links: Path) -> bool:
    charts = Path(os.environ.get("TRAINYARD_CHARTS") or links / "charts")
    names = [part.partition("/")[2] for part in CHART_PARTS]
    there = all((charts / name).exists() or (charts / f"{name}.yaml").exists() for name in names)
    return there and shutil.which("helm") is not None


def _provide_parts(stack: Stack, target: Target, paths: Paths, log: Log, *, is_preview: bool) -> None:
    from engine.progress import PlainProgress
    from local.toolchain import Toolchain, load_versions

    class NeedsProgress(PlainProgress):
        def log(self, text: str) -> None:
            log(text)

    toolchain = Toolchain(paths, load_versions(), NeedsProgress())
    wanted = [*CHART_PARTS, "binary/helm", *target.artifacts]
    if stack.target.on_host is not None:
        wanted += [*CLUSTER_PARTS, "binary/kubectl", *host_parts(stack, toolchain.names())]
    if is_preview:
        wanted = [name for name in wanted if toolchain.find(name) is None]
    toolchain.ensure(*wanted)
