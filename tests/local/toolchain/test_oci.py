"""OCI archives that we write: layers, descriptors, names, settings, and reproducible bytes."""

import hashlib
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from local.toolchain import oci


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    file = tmp_path / "layer.tar"
    oci.write_layer(
        file,
        {
            "/opt/tool": oci.Content(0o755, data=b"program"),
            "/home/me/notes": oci.Content(data=b"", owner=1000),
        },
    )
    return file


def write(file: Path, layers: list[Path], user: str = "65532:65532") -> dict[str, bytes]:
    oci.write_archive(
        file,
        names=["example.test/tool:1", "example.test/alias:1"],
        settings=oci.Settings(entrypoint=("/opt/tool",), environment={"A": "b"}, user=user),
        layers=layers,
        architecture="amd64",
    )
    with tarfile.open(file) as tar:
        return {member.name: content.read() for member in tar if (content := tar.extractfile(member))}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    content = files[f"blobs/sha256/{descriptor['digest'].removeprefix('sha256:')}"]
    assert hashlib.sha256(content).hexdigest() == descriptor["digest"].removeprefix("sha256:")
    assert len(content) == descriptor["size"]
    return content


def test_a_layer_has_the_files_with_their_modes_and_owners_and_the_folders_above(layer: Path) -> None:
    with tarfile.open(layer) as tar:
        assert tar.getnames() == ["home", "home/me", "home/me/notes", "opt", "opt/tool"]
        assert tar.getmember("opt/tool").mode == 0o755
        assert tar.getmember("home/me/notes").uid == 1000
        assert tar.getmember("home/me").isdir()


def test_every_descriptor_names_a_blob_of_its_digest_and_size(layer: Path, tmp_path: Path) -> None:
    files = write(tmp_path / "image.tar", [layer])
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    for named in json.loads(files["index.json"])["manifests"]:
        manifest = json.loads(blob(files, named))
        config = json.loads(blob(files, manifest["config"]))
        layers = [blob(files, descriptor) for descriptor in manifest["layers"]]
        assert config["rootfs"]["diff_ids"] == [
            f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers
        ]


def test_an_archive_has_all_its_names_for_containerd_and_for_docker(layer: Path, tmp_path: Path) -> None:
    files = write(tmp_path / "image.tar", [layer])
    index = json.loads(files["index.json"])["manifests"]
    names = ["example.test/tool:1", "example.test/alias:1"]
    assert [item["annotations"]["io.containerd.image.name"] for item in index] == names
    (docker,) = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == names
    assert all(name in files for name in (docker["Config"], *docker["Layers"]))


def test_a_container_starts_by_its_settings(layer: Path, tmp_path: Path) -> None:
    files = write(tmp_path / "image.tar", [layer], user="1000:1000")
    config = json.loads(files[json.loads(files["manifest.json"])[0]["Config"]])
    assert config["config"]["Entrypoint"] == ["/opt/tool"]
    assert config["config"]["User"] == "1000:1000"
    assert config["config"]["Env"] == ["A=b"]
    assert (config["architecture"], config["os"]) == ("amd64", "linux")


def test_the_same_input_makes_the_same_bytes(layer: Path, tmp_path: Path) -> None:
    write(tmp_path / "one.tar", [layer])
    write(tmp_path / "two.tar", [layer])
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
