"""Volumes on hosts without loop devices or mkfs are folders; tests/e2e/test_cluster.py fills a real one."""

from pathlib import Path

import pytest

from infra.errors import Problem, TrainyardError
from local.cluster import volumes
from local.cluster.volumes import BoundedVolume


@pytest.fixture
def volume(tmp_path: Path) -> BoundedVolume:
    return BoundedVolume(tmp_path / "object-store", size_gib=1)


def test_without_mkfs_the_package_is_named(volume: BoundedVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise FileNotFoundError(f"no program {name}")

    monkeypatch.setattr(volumes, "program", missing)
    assert volume.attach(nodes_run=False) == "no program mkfs.ext4 (apt-get install e2fsprogs)"
    assert not list(volume.folder.parent.iterdir())


def test_without_loop_device_a_folder_is_used(volume: BoundedVolume, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(program: str, *arguments: str, max_status: int = 0) -> str:
        if program == "mount":  # message and exit code of mount(8) in a container
            got = "failed to setup loop device (exit status 32)"
            raise TrainyardError([Problem("mount", got, "exit status 0", "")])
        return ""

    monkeypatch.setattr(volumes, "program", str)
    monkeypatch.setattr(volumes, "run", run)
    assert volume.attach(nodes_run=False) == "failed to setup loop device (exit status 32)"
    assert [path.name for path in volume.folder.parent.iterdir()] == ["object-store"]
    volume.image.touch()
    with pytest.raises(TrainyardError, match="failed to setup loop device"):
        volume.attach(nodes_run=False)


def test_existing_files_and_nodes_are_unchanged(volume: BoundedVolume) -> None:
    assert "its nodes are running" in volume.attach(nodes_run=True)
    volume.folder.mkdir()
    (volume.folder / "checkpoint").touch()
    assert "files of an earlier release" in volume.attach(nodes_run=False)
    assert not volume.image.exists()
