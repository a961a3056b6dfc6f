"""Typed schema of `versions.yaml`, which pins all versions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import yaml
from packaging.specifiers import SpecifierSet
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from engine.paths import REPOSITORY
from infra.errors import InputError, Problem


class _Pinned(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


Specifiers = Annotated[SpecifierSet, BeforeValidator(SpecifierSet)]


class Go(_Pinned):
    """The Go toolchain: minimum version on PATH, and the lock file of the toolchain to install."""

    minimum: str
    requirements: Path


class GoProgram(_Pinned):
    """One main package, and the arguments that make it print its version (none: it cannot)."""

    package: str
    version_arguments: tuple[str, ...] = ()


class PinnedRelease(_Pinned):
    """Location of a publisher's build, and of its checksums.

    Both are templates over `version`, `program`, `os` (linux), `arch` (amd64), `x64` (Pulumi's word) and
    `uname` (x86_64).
    """

    archive: str
    checksums: str
    also: tuple[str, ...] = ()
    """Other programs to extract from the archive."""


class Build(_Pinned):
    """Programs of one `go build` in `local/go/<folder>`, or of a release in its place."""

    folder: str
    module: str
    version: str
    programs: Mapping[str, GoProgram]
    ldflags: str = ""
    embed: Mapping[str, str] = {}
    """Files of the module to copy beside `main.go`."""
    versioned: str = ""
    """JSON file among the copied files whose `version` is set."""
    path: Specifiers | None = None
    """Accepted versions on PATH; None: PATH is never used."""
    release: PinnedRelease | None = None
    disk_mib: int
    """Free disk space in MiB of a clean build, with modules and Go's cache (measured)."""


class PinnedProvider(_Pinned):
    """A cloud's Pulumi provider, in the version of the SDK in a lock file."""

    lock: Path
    distribution: str
    """Name of the SDK's package in the lock file."""
    release: PinnedRelease
    disk_mib: int
    """Free disk space in MiB for archive and program (the largest release seen)."""


class ModuleFiles(_Pinned):
    """A file or folder in a Go module that a `go.mod` under `local/go` pins."""

    folder: str
    module: str
    path: str


class Chart(ModuleFiles):
    """A Helm chart, with the charts of ours that go into its `charts/` folder."""

    dependencies: tuple[str, ...] = ()


class PinnedChart(_Pinned):
    """A chart that helm fetches from its publisher, or from a mirror, during `up`."""

    repository: str
    version: str
    digest: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")] = ""
    """SHA-256 of the chart's archive; empty: unknown."""
    images: Mapping[str, str]
    """Full image references, by the image's purpose in the chart."""


class ManifestFiles(ModuleFiles):
    """A plain manifest, or a kustomize tree with the overlay to render."""

    overlay: str = ""


class GoPlugin(_Pinned):
    """Scripts of a Go module that the engine starts by name."""

    folder: str
    module: str
    files: Mapping[str, str]


class Image(_Pinned):
    """An image FROM scratch around one static program."""

    program: str
    at: str
    """Path of the program in the image, which is also the entrypoint."""
    names: tuple[str, ...]
    """Full references; pods use the first one."""
    digest: Annotated[str, Field(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    """Digest of the publisher's image with the first reference, for nodes that pull it; empty: unknown."""


class TrainingImage(_Pinned):
    """The image that training jobs run in: a Debian root filesystem and the training package."""

    repository: str
    recipes: tuple[Path, ...]
    """Folders of `training/images` whose contents make the image's layers, the lowest first."""
    sources: dict[Path, Path]
    """Folder of the repository → its path below /opt/trainyard/src."""
    disk_mib: int


class Environment(_Pinned):
    """A folder of Python packages, installed from a lock file with hashes."""

    requirements: Path
    disk_mib: int


class DebianPackage(_Pinned):
    """A Debian package and the program (or absolute path) that shows that it is installed."""

    provides: str
    services: tuple[str, ...] = ()
    """Systemd units that the package would enable for the next boot."""


class Versions(_Pinned):
    """All of `versions.yaml`."""

    kubernetes: str
    go: Go
    builds: Mapping[str, Build]
    providers: Mapping[str, PinnedProvider] = {}
    charts: Mapping[str, Chart]
    published_charts: Mapping[str, PinnedChart]
    manifests: Mapping[str, ManifestFiles]
    plugins: Mapping[str, GoPlugin]
    images: Mapping[str, Image]
    training_image: TrainingImage
    environments: Mapping[str, Environment]
    packages: Mapping[str, DebianPackage]
    test_packages: Mapping[str, DebianPackage] = {}
    """Debian packages that only tests need."""

    @classmethod
    def load(cls, file: Path = REPOSITORY / "versions.yaml") -> "Versions":
        """Read the file; raise InputError with every fault in it."""
        try:
            return cls.model_validate(yaml.load(file.read_bytes(), Loader=yaml.CSafeLoader))
        except ValidationError as error:
            faults = [(".".join(map(str, fault["loc"])), fault["msg"]) for fault in error.errors()]
        except (OSError, yaml.YAMLError) as error:
            faults = [("", str(error))]
        raise InputError([_problem(file, where, message) for where, message in faults])

    def build_of(self, program: str) -> str:
        """Name of the build that makes `program`; raise KeyError if none does."""
        for name, build in self.builds.items():
            if program in build.programs:
                return name
        raise KeyError(program)


def _problem(file: Path, where: str, message: str) -> Problem:
    return Problem(
        path=f"{file.name}:{where}" if where else file.name,
        got=message,
        allowed="the schema in local/toolchain/versions.py",
        fix=f"restore the file: git checkout -- {file.name}",
    )
