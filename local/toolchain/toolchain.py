"""`Toolchain`: plans, makes and locates the artifacts that `versions.yaml` pins."""

import errno
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.paths import Paths
from engine.progress import Progress
from infra.errors import HostError, Problem
from local.toolchain import links
from local.toolchain.artifact import Action, Artifact, PlanStep
from local.toolchain.catalogue import Catalogue
from local.toolchain.process import ProcessRunner, no_space
from local.toolchain.releases import Releases
from local.toolchain.schedule import run_all
from local.toolchain.versions import Versions


class Toolchain:
    """Provides artifacts by name: `binary/kubelet`, `chart/kueue`, `image/training`, `env/training`, …."""

    def __init__(
        self, paths: Paths, versions: Versions, progress: Progress, releases: Releases | None = None
    ) -> None:
        self.paths = paths
        self.versions = versions
        self._progress = progress
        self._runner = ProcessRunner()
        releases = releases or Releases.from_environment()
        self._catalogue = Catalogue(paths, versions, progress, releases, self._runner)
        artifacts = list(self._catalogue.artifacts())
        self._providers = {name: artifact for artifact in artifacts for name in artifact.provides}
        self._known = {artifact.name: artifact for artifact in artifacts} | self._providers

    def names(self) -> list[str]:
        """Every name that has a path."""
        return sorted(self._providers)

    def plan(self, names: Iterable[str] | None = None) -> list[PlanStep]:
        """Report what exists and what `ensure` would do, in order, and why; all names if none are given.

        Where something is missing, release sites are asked whether they can be reached; nothing is changed.
        """
        return list(self._plan(self._providers if names is None else names).values())

    def ensure(self, *names: str) -> None:
        """Provide all of `names`, and link existing artifacts under `.trainyard`.

        Raises HostError before any work if the host lacks something, TrainyardError if the work fails;
        completed work is retained, and a second call continues from there.
        """
        missing = self._missing(names)
        if missing:
            self._check(missing)
            needs = {artifact: set(self._needs(artifact)) & set(missing) for artifact in missing}
            run_all(needs, self._make, self._runner)
        links.refresh(self)

    def check(self, names: Iterable[str] | None = None) -> None:
        """Raise HostError with all that would keep `ensure` from working, as far as it can be known."""
        self._check(self._missing(self._providers if names is None else names))

    def path(self, name: str) -> Path:
        """Return the artifact's path; KeyError for an unknown name, HostError for a missing artifact."""
        path = self.find(name)
        if path is None:
            fix = "run `trainyard up`; `trainyard doctor` shows what that would do"
            raise HostError([Problem(name, "missing", "an artifact that the toolchain has built", fix)])
        return path

    def find(self, name: str) -> Path | None:
        """Return the artifact's path; None where it does not exist."""
        path = self._providers[name].paths()[name]
        return path if path.is_absolute() and path.exists() else None

    def image(self, name: str) -> str:
        """Return the reference by which pods use `image/<name>`."""
        return self._catalogue.images[name].reference

    def environment(self) -> dict[str, str]:
        """Return the variables that the engine runs with; makes its folders and its passphrase once."""
        return links.engine_environment(self)

    def _plan(self, names: Iterable[str]) -> dict[Artifact, PlanStep]:
        """Return the artifacts behind `names`, and those that the missing ones need, needed ones first."""
        planned: dict[Artifact, PlanStep] = {}

        def visit(artifact: Artifact) -> None:
            if artifact in planned:
                return
            step = artifact.plan()
            if step.action is not Action.PRESENT:
                for needed in self._needs(artifact):
                    visit(needed)
            planned[artifact] = step

        for name in names:
            visit(self._known[name])
        return planned

    def _missing(self, names: Iterable[str]) -> list[Artifact]:
        planned = self._plan(names)
        return [artifact for artifact, step in planned.items() if step.action is not Action.PRESENT]

    def _needs(self, artifact: Artifact) -> Iterator[Artifact]:
        return (self._known[name] for name in artifact.needs)

    def _check(self, missing: list[Artifact]) -> None:
        """Raise HostError with all that keeps the missing artifacts from being made."""
        problems = [problem for artifact in missing for problem in artifact.problems()]
        problems += self._space_problems(sum(artifact.disk_mib for artifact in missing))
        if problems:
            raise HostError(problems)

    def _space_problems(self, needed_mib: int) -> list[Problem]:
        cache = self.paths.cache
        there = next(folder for folder in (cache, *cache.parents) if folder.exists())
        free_mib = shutil.disk_usage(there).free >> 20
        if free_mib >= needed_mib:
            return []
        return [no_space(str(cache), f"{free_mib} MiB free, {needed_mib} MiB needed for missing artifacts")]

    def _make(self, artifact: Artifact) -> None:
        try:
            with self._progress.task(artifact.name) as task:
                artifact.make(task)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise HostError([no_space(artifact.name, str(error))]) from error
            if error.errno in {errno.EACCES, errno.EROFS, errno.EPERM}:
                fix = "change its owner, or set TRAINYARD_CACHE to a folder that you may write to"
                raise HostError([Problem(artifact.name, str(error), "a writable cache", fix)]) from error
            raise
