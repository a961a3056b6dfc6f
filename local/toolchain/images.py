"""Builds OCI images without Docker: one per static program, and the training image."""

import os
import platform
import re
import shlex
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import certifi

from engine.progress import Task
from infra.errors import Problem
from local.toolchain import oci, sbom
from local.toolchain.artifact import Action, CachedArtifact, Lane, PlanStep
from local.toolchain.golang import GoBuild
from local.toolchain.process import ProcessRunner
from local.toolchain.releases import ARCHITECTURE
from local.toolchain.store import ArtifactStore, file_digests, input_key, sha256
from local.toolchain.versions import Image, TrainingImage

RECIPE = 1
ARCHIVE = "image.tar"
LAYER = "layer.tar"

MATERIALS = "sbom/training"

USER = 1000
"""UID of training jobs."""

EGG_INFO = "trainyard_train.egg-info"
"""Folder that an editable installation creates beside the code."""

NUM_RETAINED = 3
"""Number of training images that the cache retains, besides those of the last day; each change of the
package makes one, of 170 MB."""

_NOBODY = b"nonroot:x:65532:65532:nonroot:/:/sbin/nologin\n"


class ProgramImage(CachedArtifact):
    """`FROM scratch`: one static program, certificate authorities, a user who is not root, and /tmp."""

    disk_mib = 200

    def __init__(self, name: str, image: Image, *, store: ArtifactStore, build: GoBuild) -> None:
        self.name = f"image/{name}"
        self.store = store
        self.needs = (build.name,)
        self._image = image
        self._build = build

    def key(self) -> str:
        return input_key(RECIPE, self._image.model_dump(), self._build.key(), sha256(Path(certifi.where())))

    def intention(self) -> PlanStep:
        return PlanStep(self.name, Action.ASSEMBLE, f"around {self._image.program}")

    def fill(self, folder: Path, task: Task) -> str:
        program = self._build.paths()[f"binary/{self._image.program}"]
        contents = {
            self._image.at: oci.Content(0o755, source=program),
            "/etc/ssl/certs/ca-certificates.crt": oci.Content(source=Path(certifi.where())),
            "/etc/passwd": oci.Content(data=_NOBODY),
            "/tmp": oci.Content(0o1777),  # noqa: S108 (a path in the image)
        }
        layer = folder / LAYER
        oci.write_layer(layer, contents)
        settings = oci.Settings(entrypoint=(self._image.at,))
        oci.write_archive(
            folder / ARCHIVE,
            names=self._image.names,
            settings=settings,
            layers=[layer],
            architecture=ARCHITECTURE,
        )
        layer.unlink()
        return f"around {self._image.program}"

    def paths(self) -> Mapping[str, Path]:
        return {self.name: self.folder / ARCHIVE}

    @property
    def reference(self) -> str:
        """The name that pods use."""
        return self._image.names[0]


class RootFilesystem(CachedArtifact):
    """The lower layer of the training image: the host's own Debian or Ubuntu, at its smallest."""

    name = "rootfs/training"
    needs = ("package/mmdebstrap",)
    lane = Lane.NETWORK

    def __init__(
        self, image: TrainingImage, *, store: ArtifactStore, repository: Path, runner: ProcessRunner
    ) -> None:
        self.store = store
        self.disk_mib = image.disk_mib
        self._image = image
        self._recipes = [repository / recipe for recipe in image.recipes]
        self._runner = runner

    def key(self) -> str:
        recipes = [file_digests(recipe, _ingredients(recipe)) for recipe in self._recipes]
        return input_key(RECIPE, _suite(), ARCHITECTURE, recipes)

    def intention(self) -> PlanStep:
        return PlanStep(self.name, Action.BUILD, f"{_suite()} with {', '.join(self._packages())}")

    def problems(self) -> list[Problem]:
        if os.geteuid() == 0:
            return []
        fix = "run as root, or with sudo"
        return [
            Problem(self.name, f"user {os.geteuid()}", "root, to create device nodes and set owners", fix)
        ]

    def fill(self, folder: Path, task: Task) -> str:
        excluded = [
            f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in ("doc", "man", "info", "locale")
        ]
        # Separate namespaces: whatever ends it ends all its mounts too.
        alone = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        make = ("mmdebstrap", "--mode=root", "--variant=essential", "--format=tar", *excluded)
        include = f"--include={','.join(self._packages())}"
        hooks = [f"--customize-hook={recipe / 'customize.sh'}" for recipe in self._recipes]
        target = (_suite(), str(folder / LAYER), *_mirrors())
        self._runner.run(
            [*alone, *make, include, *hooks, *target],
            what=self.name,
            environ={"TMPDIR": str(folder)},
            on_line=lambda line: task.advanced(0, None, line.removeprefix("I: ")),
        )
        return f"{_suite()} by mmdebstrap"

    def paths(self) -> Mapping[str, Path]:
        return {self.name: self.folder / LAYER}

    def _packages(self) -> list[str]:
        return [name for recipe in self._recipes for name in (recipe / "packages.txt").read_text().split()]


class TrainingArchive(CachedArtifact):
    """The training image: the root filesystem, and the training package as a thin layer on it.

    A bill of materials is in it, and beside it: Debian's packages, and those of Python that pods mount.
    """

    name = "image/training"
    disk_mib = 500

    def __init__(
        self,
        image: TrainingImage,
        *,
        store: ArtifactStore,
        repository: Path,
        root: RootFilesystem,
        requirements: Path,
    ) -> None:
        self.store = store
        self.needs = (root.name,)
        self._image = image
        self._repository = repository
        self._sources = image.sources
        self._root = root
        self._requirements = repository / requirements
        self._dockerfile = repository / image.recipes[0] / "Dockerfile"

    @property
    def provides(self) -> tuple[str, ...]:
        return (self.name, MATERIALS)

    def key(self) -> str:
        digests = file_digests(self._repository, list(self._files()))
        lock = sha256(self._requirements)
        variables = environment(self._dockerfile)
        return input_key(RECIPE, self._image.repository, variables, self._root.key(), digests, lock)

    def intention(self) -> PlanStep:
        return PlanStep(self.name, Action.ASSEMBLE, "the training package or what is below it has changed")

    def make(self, task: Task) -> None:
        super().make(task)
        self.store.prune(self.entry, keep=NUM_RETAINED)

    def fill(self, folder: Path, task: Task) -> str:
        top = folder / LAYER
        root = self._root.paths()[self._root.name]
        inside = Path("/opt/trainyard")
        names = {file: inside / "src" / name for file, name in self._files().items()}
        (folder / sbom.FILE).write_bytes(self._materials(root))
        names[folder / sbom.FILE] = inside / sbom.FILE
        oci.write_layer(top, {str(name): oci.Content(source=file) for file, name in names.items()})
        settings = oci.Settings(
            command=("/bin/sh",),
            user=f"{USER}:{USER}",
            environment=environment(self._dockerfile),
            working_folder="/home/trainyard",
        )
        oci.write_archive(
            folder / ARCHIVE,
            names=[self.reference],
            settings=settings,
            layers=[root, top],
            architecture=ARCHITECTURE,
        )
        top.unlink()
        return "the root filesystem and the training package"

    def _materials(self, root: Path) -> bytes:
        contents = sbom.RootContents.of(root)
        python = sbom.locked(self._requirements.read_text(), contents.python)
        return sbom.bill_of_materials(self._image.repository, self.entry.key, [*contents.packages, *python])

    def paths(self) -> Mapping[str, Path]:
        return {self.name: self.folder / ARCHIVE, MATERIALS: self.folder / sbom.FILE}

    @property
    def reference(self) -> str:
        """The name that pods use; its tag changes with anything inside."""
        return f"{self._image.repository}:{self.entry.key}"

    def _files(self) -> dict[Path, Path]:
        """Return each file of the code with its name in the image."""
        return {
            file: target / file.relative_to(self._repository / source)
            for source, target in self._sources.items()
            for file in (self._repository / source).rglob("*")
            if file.is_file() and not any(part in file.parts for part in ("__pycache__", EGG_INFO))
        }


def environment(dockerfile: Path) -> dict[str, str]:
    """Return the variables of an image by its last ENV, on a base that has none of them."""
    text = dockerfile.read_text().replace("\\\n", "")
    last = re.findall(r"(?m)^ENV (.*)", text)[-1]
    pairs = (pair.partition("=") for pair in shlex.split(re.sub(r"\$\{\w+:\+[^}]*\}", "", last)))
    return {name: value for name, _, value in pairs}


def _ingredients(recipe: Path) -> list[Path]:
    """Return a recipe's files for our build; its Dockerfile is for builds with Docker."""
    return [file for file in recipe.iterdir() if file.is_file() and not file.name.startswith("Dockerfile")]


def _suite() -> str:
    """Return the code name of the host's distribution, such as `noble`; a host without one makes no image."""
    with suppress(OSError):
        return platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    return "stable"


def _mirrors() -> list[str]:
    """Return apt source lines of the host's own distribution; its other sources are no part of the image."""
    command = (
        "apt-get",
        "indextargets",
        "--format",
        "deb $(REPO_URI) $(RELEASE) $(COMPONENT)",
        "Created-By: Packages",
    )
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = {_suite(), f"{_suite()}-updates", f"{_suite()}-security"}
    return sorted({line for line in lines if line.split()[2] in ours})
