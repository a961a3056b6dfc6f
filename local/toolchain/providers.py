"""Finds the clouds' Pulumi provider plugins in the user's Pulumi home folder, and downloads missing ones.

Our `pulumi` has a home folder separate from the user's, so that two clones do not use each other's plugins;
the user's plugins are linked into it. Missing plugins are downloaded before any credential is needed.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property
from importlib import metadata
from pathlib import Path

from engine.progress import Task
from infra.errors import ExitCode, Problem, TrainyardError
from local.locked import locked_versions
from local.toolchain.artifact import Action, CachedArtifact, Lane, PlanStep
from local.toolchain.releases import PLATFORM, BrokenOffError, Releases, foreign_platform
from local.toolchain.store import ArtifactStore, input_key
from local.toolchain.versions import PinnedProvider, PinnedRelease


class ProviderPlugin(CachedArtifact):
    """`pulumi-resource-<name>` in the version of the SDK."""

    lane = Lane.NETWORK

    def __init__(
        self,
        name: str,
        provider: PinnedProvider,
        *,
        store: ArtifactStore,
        releases: Releases,
        repository: Path,
        ours: Path,
    ) -> None:
        self.plugin = name
        self.name = f"binary/{self.program}"
        self.disk_mib = provider.disk_mib
        self.store = store
        self._provider = provider
        self._releases = releases
        self._repository = repository
        self._ours = ours
        """The folder of our links, which are no installation."""

    @property
    def program(self) -> str:
        return f"pulumi-resource-{self.plugin}"

    @property
    def programs(self) -> tuple[str, ...]:
        return (self.program,)

    @property
    def release(self) -> PinnedRelease:
        return self._provider.release

    @cached_property
    def version(self) -> str:
        """Version of the installed SDK, which asks the engine for it; else that in the lock file."""
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(self._provider.distribution)
        return locked_versions(self._repository / self._provider.lock)[self._provider.distribution]

    def key(self) -> str:
        return input_key(self.version, PLATFORM)

    def plan(self) -> PlanStep:
        if self.store.find_seal(self.entry) is None and self._installed:
            return PlanStep(self.name, Action.PRESENT, f"installed: {self._installed.parent}")
        return super().plan()

    def intention(self) -> PlanStep:
        return PlanStep(self.name, Action.DOWNLOAD, f"release {self.version}, with its checksums")

    def problems(self) -> list[Problem]:
        refusal = self._releases.refusal(self)
        return [self._unavailable(refusal)] if refusal else []

    def make(self, task: Task) -> None:
        if not self._installed:
            super().make(task)

    def fill(self, folder: Path, task: Task) -> str:
        try:
            return self._releases.fetch(self, self.release, folder, task)
        except BrokenOffError as error:
            raise TrainyardError([self._unavailable(str(error))], ExitCode.FAILED) from error

    def paths(self) -> Mapping[str, Path]:
        found = None if self.store.find_seal(self.entry) else self._installed
        return {self.name: found or self.folder / self.program}

    @cached_property
    def _installed(self) -> Path | None:
        return installed_plugin(self.plugin, self.version, self._ours)

    def _unavailable(self, why: str) -> Problem:
        return Problem(
            path=f"{self.program} {self.version}",
            got=f"not installed, and it cannot be downloaded: {why}",
            allowed="Pulumi's provider of the target, in the version of its SDK",
            fix=f"run `pulumi plugin install resource {self.plugin} {self.version}` where it exists, and"
            f" copy ~/.pulumi/plugins/resource-{self.plugin}-v{self.version} here",
        )


def installed_plugin(name: str, version: str, ours: Path) -> Path | None:
    """Return the user's own plugin, where `pulumi plugin install` puts it; `ours` has links of ours."""
    for home in _homes(os.environ):
        program = home / "plugins" / f"resource-{name}-v{version}" / f"pulumi-resource-{name}"
        is_ours = program.is_symlink() and program.readlink().parent == ours
        if program.is_file() and not is_ours and not foreign_platform(program):
            return program
    return None


def _homes(environ: Mapping[str, str]) -> Iterator[Path]:
    """Return Pulumi's home folders that the user's own shell uses."""
    if environ.get("PULUMI_HOME"):
        yield Path(environ["PULUMI_HOME"])
    yield Path(environ.get("HOME", "/root")) / ".pulumi"
