"""The SBOM of the local image has all packages of a job, in a valid form for scanners."""

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from local.toolchain.images import RootFilesystem, TrainingArchive
from local.toolchain.process import ProcessRunner
from local.toolchain.sbom import STATUS, RootContents, bill_of_materials, locked
from local.toolchain.store import ArtifactStore
from tests.engine.progress import RecordedProgress
from tests.local.toolchain.conftest import Workshop, pinned

DPKG = Path(__file__).with_name("dpkg.txt").read_text()


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """A root filesystem, as mmdebstrap writes it."""
    file = tmp_path / "layer.tar"
    contents = {
        "./usr/lib/os-release": 'ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\nID_LIKE="x"\n',
        f"./{STATUS}": DPKG,
    }
    with tarfile.open(file, "w") as tar:
        link = tarfile.TarInfo("./etc/os-release")
        link.type, link.linkname = tarfile.SYMTYPE, "../usr/lib/os-release"
        tar.addfile(link)
        for name, text in contents.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return file


def test_a_root_filesystem_lists_its_packages_and_its_python(layer: Path) -> None:
    found = RootContents.of(layer)
    assert [(each.name, each.version) for each in found.packages] == [
        ("python3", "3.11.2-1+b1"),
        ("libc6", "2.36-9+deb12u13"),
    ]
    assert found.packages[1].qualifiers == {"arch": "amd64", "distro": "bookworm"}
    assert found.python == "3.11"


def test_a_lock_lists_what_is_installed_for_this_python_and_platform() -> None:
    lock = (
        "# a comment\n"
        "torch==2.15.0 \\\n    --hash=sha256:00 \\\n    --hash=sha256:01\n    # via -r training.in\n"
        "tomli==2.0 ; python_version < '3.11' \\\n    --hash=sha256:02\n"
        "colorama==0.4 ; sys_platform == 'win32' --hash=sha256:03\n"
        "numpy==2.5 ; python_full_version >= '3.11' \\\n    --hash=sha256:04\n"
    )
    assert [(each.name, each.version) for each in locked(lock, "3.11")] == [
        ("torch", "2.15.0"),
        ("numpy", "2.5"),
    ]
    assert "tomli" in [each.name for each in locked(lock, "3.10")]
    assert len([*locked(lock)]) == 4


def fault_in(sbom: str) -> object:
    """Return the schema's error, or None. The validator is imported here, since it takes seconds."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(sbom)


def test_the_sbom_is_valid_names_every_package_once_and_is_reproducible(layer: Path) -> None:
    lock = REPOSITORY / "requirements/training.txt"
    packages = [*RootContents.of(layer).packages, *locked(lock.read_text(), "3.11")]
    sbom = bill_of_materials("trainyard.local/training", "0123456789ab", packages)
    assert sbom == bill_of_materials("trainyard.local/training", "0123456789ab", packages)
    assert fault_in(sbom.decode()) is None
    data = json.loads(sbom)
    assert data["metadata"]["component"]["version"] == "0123456789ab"
    assert "timestamp" not in data["metadata"]
    urls = [each["purl"] for each in data["components"]]
    assert len(set(urls)) == len(urls) == len(packages)
    assert "pkg:deb/debian/libc6@2.36-9%2Bdeb12u13?arch=amd64&distro=bookworm" in urls
    pinned = re.findall(r"(?m)^(torch|safetensors|pydantic)==([^\s;]+)", lock.read_text())
    assert {f"pkg:pypi/{name}@{version}" for name, version in pinned} <= set(urls)
    assert len(pinned) == 3
    assert all("--hash" not in url for url in urls)
    data["components"][0]["type"] = "folder"
    assert fault_in(json.dumps(data)) is not None, "the schema has no such type"


class ExistingRootFilesystem(RootFilesystem):
    """An existing root filesystem."""

    layer: Path

    def key(self) -> str:
        return "0123456789ab"

    def paths(self) -> dict[str, Path]:
        return {self.name: self.layer}


def test_the_image_and_the_cache_have_it(layer: Path, workshop: Workshop, progress: RecordedProgress) -> None:
    versions, store = pinned(), ArtifactStore(workshop.paths.cache)
    root = ExistingRootFilesystem(
        versions.training_image, store=store, repository=workshop.paths.repository, runner=ProcessRunner()
    )
    root.layer = layer
    image = TrainingArchive(
        versions.training_image,
        store=store,
        repository=workshop.paths.repository,
        root=root,
        requirements=Path("requirements/training.txt"),
    )
    with progress.task("image") as task:
        image.make(task)
    beside = image.paths()["sbom/training"].read_bytes()
    with tarfile.open(image.paths()["image/training"]) as archive:
        index = archive.extractfile("manifest.json")
        assert index
        top = archive.extractfile(json.load(index)[0]["Layers"][-1])
        assert top
        with tarfile.open(fileobj=top) as files:
            inside = files.extractfile("opt/trainyard/sbom.cdx.json")
            assert inside
            assert inside.read() == beside
            assert "opt/trainyard/src/trainyard_train/train.py" in files.getnames()
            assert "opt/trainyard/src/training/configs/digits.yaml" in files.getnames()
    data = json.loads(beside)
    assert (
        f"{data['metadata']['component']['name']}:{data['metadata']['component']['version']}"
        == image.reference
    )
    assert {each["name"] for each in data["components"]} == {"python3", "libc6", "torch"}
