"""Constructs the objects of all artifacts that `versions.yaml` pins, with their dependencies."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from engine.paths import Paths
from engine.progress import Progress
from local.toolchain.artifact import Artifact
from local.toolchain.golang import GoBuild, GoToolchain
from local.toolchain.images import ProgramImage, RootFilesystem, TrainingArchive
from local.toolchain.modules import ChartFolder, ManifestFile, PluginScripts
from local.toolchain.packages import DebianPackages
from local.toolchain.process import ProcessRunner
from local.toolchain.providers import ProviderPlugin
from local.toolchain.python import PythonEnvironment
from local.toolchain.releases import Releases
from local.toolchain.store import ArtifactStore
from local.toolchain.versions import Versions


@dataclass(frozen=True)
class Catalogue:
    """Constructs the objects of all artifacts, without looking at the host."""

    paths: Paths
    versions: Versions
    progress: Progress
    releases: Releases
    runner: ProcessRunner

    @cached_property
    def store(self) -> ArtifactStore:
        """The cache."""
        return ArtifactStore(self.paths.cache)

    @cached_property
    def go(self) -> GoToolchain:
        """The Go toolchain of all Go artifacts."""
        return GoToolchain(
            self.versions.go, store=self.store, repository=self.paths.repository, runner=self.runner
        )

    @cached_property
    def builds(self) -> dict[str, GoBuild]:
        """Name in `versions.yaml` → programs."""
        return {
            name: GoBuild(
                name, build, store=self.store, go=self.go, releases=self.releases, ours=self.paths.bin
            )
            for name, build in self.versions.builds.items()
        }

    @cached_property
    def images(self) -> dict[str, ProgramImage | TrainingArchive]:
        """Name in `versions.yaml` → image."""
        programs = {
            name: ProgramImage(
                name, image, store=self.store, build=self.builds[self.versions.build_of(image.program)]
            )
            for name, image in self.versions.images.items()
        }
        training = TrainingArchive(
            self.versions.training_image,
            store=self.store,
            repository=self.paths.repository,
            root=self.root_filesystem,
            requirements=self.versions.environments["training"].requirements,
        )
        return {**programs, "training": training}

    @cached_property
    def root_filesystem(self) -> RootFilesystem:
        """Lower layer of the training image."""
        return RootFilesystem(
            self.versions.training_image,
            store=self.store,
            repository=self.paths.repository,
            runner=self.runner,
        )

    @cached_property
    def charts(self) -> dict[str, ChartFolder]:
        """Name in `versions.yaml` → chart; a chart comes after those that it depends on."""
        charts: dict[str, ChartFolder] = {}
        for name, chart in self.versions.charts.items():
            below = {dependency: charts[dependency] for dependency in chart.dependencies}
            charts[name] = ChartFolder(name, chart, store=self.store, go=self.go, dependencies=below)
        return charts

    def artifacts(self) -> Iterator[Artifact]:
        """All of them."""
        versions, store, go = self.versions, self.store, self.go
        yield go
        yield from self.builds.values()
        for name, provider in versions.providers.items():
            yield ProviderPlugin(
                name,
                provider,
                store=store,
                releases=self.releases,
                repository=self.paths.repository,
                ours=self.paths.bin,
            )
        yield from self.charts.values()
        for name, manifest in versions.manifests.items():
            kubectl = self.builds["kubectl"]
            yield ManifestFile(name, manifest, store=store, go=go, kubectl=kubectl, runner=self.runner)
        for name, plugin in versions.plugins.items():
            yield PluginScripts(name, plugin, store=store, go=go)
        yield DebianPackages(versions.packages, runner=self.runner, progress=self.progress)
        for_tests = versions.test_packages
        yield DebianPackages(for_tests, runner=self.runner, progress=self.progress, kind="test-package")
        yield self.root_filesystem
        yield from self.images.values()
        for name, environment in versions.environments.items():
            root = self.paths.repository
            yield PythonEnvironment(name, environment, store=store, repository=root, runner=self.runner)
