"""Takes charts, manifests and scripts out of pinned Go modules: copies them, puts a chart's dependencies into
it, and renders kustomize overlays.
"""

import shutil
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path

import yaml

from engine.progress import Task
from local.toolchain.artifact import Action, CachedArtifact, PlanStep
from local.toolchain.golang import GoBuild, GoToolchain
from local.toolchain.process import ProcessRunner
from local.toolchain.store import ArtifactStore, input_key
from local.toolchain.versions import Chart, GoPlugin, ManifestFiles, ModuleFiles

RECIPE = 1


class ModuleArtifact(CachedArtifact):
    """Files of a Go module; the key is the module's hash in go.sum and how the files are processed."""

    needs: tuple[str, ...] = (GoToolchain.name,)
    disk_mib = 50

    def __init__(
        self, name: str, pin: ModuleFiles | GoPlugin, *, store: ArtifactStore, go: GoToolchain
    ) -> None:
        self.name = name
        self.store = store
        self._pin = pin
        self._go = go

    def key(self) -> str:
        checksums = (self._go.folder_of(self._pin.folder) / "go.sum").read_text().splitlines()
        ours = sorted(line for line in checksums if line.startswith(f"{self._pin.module} "))
        return input_key(RECIPE, ours, self._pin.model_dump())

    def intention(self) -> PlanStep:
        return PlanStep(self.name, Action.ASSEMBLE, f"from the Go module {self._pin.module}")

    def fill(self, folder: Path, task: Task) -> str:
        task.advanced(0, None, f"fetching {self._pin.module}")
        self.take(self._go.source_of(self._pin.module, pinned_in=self._pin.folder), folder)
        return f"from the Go module {self._pin.module}"

    @abstractmethod
    def take(self, source: Path, folder: Path) -> None:
        """Copy the required files of the module's `source` into `folder`."""


class ChartFolder(ModuleArtifact):
    """A Helm chart with its dependencies beside it, templates untouched."""

    def __init__(
        self,
        name: str,
        chart: Chart,
        *,
        store: ArtifactStore,
        go: GoToolchain,
        dependencies: "Mapping[str, ChartFolder]",
    ) -> None:
        super().__init__(f"chart/{name}", chart, store=store, go=go)
        self._chart = chart
        self._dependencies = dependencies
        self.needs = (*self.needs, *(dependency.name for dependency in dependencies.values()))

    def key(self) -> str:
        return input_key(super().key(), [chart.key() for chart in self._dependencies.values()])

    def take(self, source: Path, folder: Path) -> None:
        _copy(source / self._chart.path, folder / "chart")
        definition = folder / "chart" / "Chart.yaml"
        content = yaml.safe_load(definition.read_text())
        listed = content.get("dependencies", [])
        content["dependencies"] = [item for item in listed if item["name"] in self._dependencies]
        if content["dependencies"] != listed:
            definition.write_text(yaml.safe_dump(content, sort_keys=False))
        for name, chart in self._dependencies.items():
            shutil.copytree(chart.paths()[chart.name], folder / "chart" / "charts" / name)

    def paths(self) -> Mapping[str, Path]:
        return {self.name: self.folder / "chart"}


class ManifestFile(ModuleArtifact):
    """One YAML file: as published, or rendered from a kustomize overlay."""

    def __init__(
        self,
        name: str,
        manifest: ManifestFiles,
        *,
        store: ArtifactStore,
        go: GoToolchain,
        kubectl: GoBuild,
        runner: ProcessRunner,
    ) -> None:
        super().__init__(f"manifest/{name}", manifest, store=store, go=go)
        self._manifest = manifest
        self._kubectl = kubectl
        self._runner = runner
        if manifest.overlay:
            self.needs = (*self.needs, kubectl.name)

    def take(self, source: Path, folder: Path) -> None:
        target = folder / "manifest.yaml"
        if not self._manifest.overlay:
            _copy(source / self._manifest.path, target)
            return
        overlay = source / self._manifest.path / self._manifest.overlay
        command = (self._kubectl.paths()["binary/kubectl"], "kustomize", overlay, "-o", target)
        self._runner.run(command, what=self.name)

    def paths(self) -> Mapping[str, Path]:
        return {self.name: self.folder / "manifest.yaml"}


class PluginScripts(ModuleArtifact):
    """Executable scripts in one folder."""

    def __init__(self, name: str, plugin: GoPlugin, *, store: ArtifactStore, go: GoToolchain) -> None:
        super().__init__(f"plugin/{name}", plugin, store=store, go=go)
        self._plugin = plugin

    def take(self, source: Path, folder: Path) -> None:
        for name, path in self._plugin.files.items():
            _copy(source / path, folder / name)
            (folder / name).chmod(0o755)

    def paths(self) -> Mapping[str, Path]:
        return {self.name: self.folder}


def _copy(source: Path, target: Path) -> None:
    """Copy a file or a folder, writable: the module cache is read-only."""
    if source.is_file():
        shutil.copyfile(source, target)
        return
    shutil.copytree(source, target, copy_function=shutil.copyfile)
    for folder in (target, *(path for path in target.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
