"""Files of the cluster are written atomically, and only if they change."""

import stat
from pathlib import Path

from local.cluster.files import write


def test_a_file_is_complete_whatever_a_killed_run_has_left(tmp_path: Path) -> None:
    target = tmp_path / "key"
    target.write_text("old")
    (tmp_path / ".key.new").write_text("left by a run that was killed")
    write(target, b"new")
    assert target.read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    write(tmp_path / "folder" / "key", "text")
    assert stat.S_IMODE((tmp_path / "folder" / "key").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o700


def test_a_file_with_the_same_content_is_not_touched(tmp_path: Path) -> None:
    target = tmp_path / "config"
    write(target, "text")
    before = target.stat()
    write(target, "text")
    assert (target.stat().st_ino, target.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
