"""Installs folders of Python packages from lock files: by hash, wheels only."""

import sys
from collections.abc import Mapping
from pathlib import Path

from engine.progress import Task
from infra.errors import Problem
from local.locked import locked_versions
from local.toolchain.artifact import Action, CachedArtifact, Lane, PlanStep
from local.toolchain.process import ProcessRunner
from local.toolchain.store import ArtifactStore, input_key
from local.toolchain.versions import Environment

RECIPE = 1
SYSTEM_PYTHON = Path("/usr/bin/python3")
"""The distribution's Python, which the training image has too, since it is made from the same
distribution."""


class PythonEnvironment(CachedArtifact):
    """Python packages of training jobs, mounted read-only into pods, since images cannot carry gigabytes."""

    lane = Lane.NETWORK

    def __init__(
        self,
        name: str,
        environment: Environment,
        *,
        store: ArtifactStore,
        repository: Path,
        runner: ProcessRunner,
    ) -> None:
        self.name = f"env/{name}"
        self.disk_mib = environment.disk_mib
        self.store = store
        self._requirements = repository / environment.requirements
        self._runner = runner

    def key(self) -> str:
        return input_key(RECIPE, self._requirements.read_text(), SYSTEM_PYTHON.resolve().name)

    def intention(self) -> PlanStep:
        why = f"{self._requirements.name} or the Python of the image is new; by hash, for {SYSTEM_PYTHON}"
        return PlanStep(self.name, Action.INSTALL, why)

    def problems(self) -> list[Problem]:
        if SYSTEM_PYTHON.exists():
            return []
        fix = "apt-get install python3"
        return [Problem(str(SYSTEM_PYTHON), "missing", "the distribution's Python, as in the image", fix)]

    def fill(self, folder: Path, task: Task) -> str:
        install(self._runner, self._requirements, folder, python=SYSTEM_PYTHON, what=self.name, task=task)
        return f"installed from {self._requirements.name}"

    def paths(self) -> Mapping[str, Path]:
        return {self.name: self.folder}


def install(runner: ProcessRunner, lock: Path, folder: Path, *, python: Path, what: str, task: Task) -> None:
    """Install the locked packages into `folder`, compiled for `python`: pods cannot write the bytecode."""
    total = len(locked_versions(lock))
    prepared = 0

    def on_line(line: str) -> None:
        nonlocal prepared
        prepared += line.lstrip().startswith(("Downloaded", "Built"))
        task.advanced(min(prepared, total), total, line.strip())

    flags = ("--require-hashes", "--only-binary", ":all:", "--compile-bytecode")
    command = (sys.executable, "-m", "uv", "pip", "install", *flags, "--python", python, "--target", folder)
    runner.run([*command, "--requirements", lock], what=what, on_line=on_line)
