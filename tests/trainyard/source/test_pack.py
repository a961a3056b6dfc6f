"""The pack of a code folder: its files, what it refuses, and a digest that depends only on the code."""

import gzip
import hashlib
import os
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.errors import InputError, Problem
from tests.problems import problem_of, problems_of
from trainyard.jobs import submit
from trainyard.source import pack as packing
from trainyard.source.files import list_files
from trainyard.source.pack import Pack, pack

NOT_UTF8 = os.fsdecode(b"caf\xe9.txt")
KEY = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nAAAA\n"


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "protocol.file.allow=always")
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with an executable, a link, a name that is not UTF-8, and a long one."""
    made = tmp_path / "code"
    (made / "lib").mkdir(parents=True)
    (made / "train.py").write_text("print(1)\n")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "latest.py").symlink_to("lib/model.py")
    (made / "lib" / "model.py").write_text("x = 1\n")
    (made / NOT_UTF8).write_text("e\n")
    deep = made / ("d" * 60) / ("e" * 60)
    deep.mkdir(parents=True)
    (deep / ("f" * 60)).write_text("long\n")
    git(made, "init", "--quiet")
    git(made, "add", ".")
    git(made, "commit", "--quiet", "-m", "first")
    return made


def packed(folder: Path, *listed: str) -> Pack:
    listing = list_files(folder, listed)
    return pack(folder, listing.names, listed, listing.stored)


def entries(made: Pack) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=made.compressed(), mode="r:gz", errors="surrogateescape") as tar:
        return {each.name: each for each in tar}


def test_clones_with_other_times_masks_line_ends_modes_or_links_have_one_digest(
    folder: Path, tmp_path: Path
) -> None:
    one, before = packed(folder), os.umask(0o077)
    try:
        for setting in ("bare=false", "autocrlf=true", "fileMode=false", "symlinks=false"):
            git(tmp_path, "clone", "--quiet", "--config", f"core.{setting}", str(folder), setting)
    finally:
        os.umask(before)
    (tmp_path / "fileMode=false/train.py").chmod(0o755)
    assert (tmp_path / "autocrlf=true/run.sh").read_bytes() == b"#!/bin/sh\r\n"
    assert not (tmp_path / "symlinks=false/latest.py").is_symlink()
    for clone in tmp_path.glob("*=*"):
        for path in clone.rglob("*"):
            os.utime(path, (1, 1), follow_symlinks=False)
        assert packed(clone).compressed().read() == one.compressed().read()
        assert not list_files(clone).dirty
    assert one.digest == f"sha256:{hashlib.sha256(gzip.decompress(one.compressed().read())).hexdigest()}"


def test_a_repository_of_another_owner_is_refused_with_gits_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "true")
    monkeypatch.setenv("LANGUAGE", "de")
    problem = problem_of(lambda: list_files(folder))
    assert f"detected dubious ownership in repository at '{folder}'" in problem.got
    assert problem.fix == f"git config --global --add safe.directory {folder}"


def test_what_desktops_leave_in_folders_is_never_sent_nor_named(folder: Path) -> None:
    before = packed(folder).digest
    for name in (".DS_Store", "lib/._model.py", "Thumbs.db", "desktop.ini", "train.py:Zone.Identifier"):
        (folder / name).touch()
    assert list_files(folder).untracked == ()
    git(folder, "add", ".")
    assert packed(folder).digest == before
    (folder / ".git").rename(folder.parent / "git")
    assert packed(folder).digest == before


def test_links_executable_bits_and_names_are_kept(folder: Path) -> None:
    found = entries(packed(folder))
    assert found["latest.py"].linkname == "lib/model.py"
    assert (found["run.sh"].mode, found["train.py"].mode) == (0o755, 0o644)
    assert NOT_UTF8 in found
    assert max(map(len, found)) > 160
    assert all((each.mtime, each.uid, each.gid, each.uname) == (0, 0, 0, "") for each in found.values())


@pytest.mark.parametrize(
    "change",
    [
        lambda at: (at / "train.py").write_text("print(2)\n"),
        lambda at: (at / "train.py").chmod(0o755),
        lambda at: (at / "train.py").unlink(),
        lambda at: (at / "train.py").rename(at / "latest.py"),
    ],
    ids=["content", "executable", "deleted", "a file that replaced a link"],
)
def test_files_on_disk_are_packed_not_committed_ones(folder: Path, change: Callable[[Path], None]) -> None:
    before = packed(folder).digest
    change(folder)
    assert packed(folder).digest != before
    assert list_files(folder).dirty


def test_a_file_that_vanishes_meanwhile_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = list_files(folder).names
    check = packing._problems

    def vanishing(file: packing._File, listed: Sequence[str]) -> Iterator[Problem]:
        (folder / "train.py").unlink(missing_ok=True)
        return check(file, listed)

    monkeypatch.setattr(packing, "_problems", vanishing)
    assert set(entries(pack(folder, names))) == set(names) - {"train.py"}


def test_only_files_that_git_tracks_are_packed_and_the_others_are_named(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine\n")
    (folder / ".gitignore").write_text("*.bin\n")
    (folder / "weights.bin").write_text("w\n")
    found = list_files(folder)
    assert not {"notes.txt", "weights.bin"} & set(found.names)
    assert found.untracked == (".gitignore", "notes.txt")
    assert found.ignored == ("weights.bin",)
    assert len(found.commit) == 40 and not found.dirty
    assert {"weights.bin", "notes.txt"} <= set(list_files(folder, ["weights.bin", "notes.*"]).names)
    with pytest.raises(InputError, match="'absent'"):
        list_files(folder, ["absent"])


def test_ignored_data_are_named_and_the_caches_of_tools_are_not(folder: Path) -> None:
    (folder / ".gitignore").write_text("*.bin\n__pycache__/\n.venv/\nlib/*.so\n")
    for name in ("data/a/b.bin", "__pycache__/a.pyc", ".venv/bin/python", "lib/fast.so"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    assert list_files(folder).ignored == ("data/", "lib/fast.so")
    assert list_files(folder, ["data", "lib/*.so"]).ignored == ()


def test_a_folder_within_a_repository_is_packed_alone(folder: Path) -> None:
    assert list_files(folder / "lib").names == ("model.py",)


def test_a_submodule_is_part_of_the_code(folder: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "outer")
    git(tmp_path / "outer", "submodule", "--quiet", "add", str(folder), "inner")
    assert "inner/train.py" in list_files(tmp_path / "outer").names


def test_what_git_has_and_is_not_sent_as_it_is_has_a_line(folder: Path, tmp_path: Path) -> None:
    """A submodule of a clone without --recurse-submodules, a deleted file, a pointer, a clone inside."""
    git(tmp_path, "init", "--quiet", "outer")
    git(tmp_path / "outer", "submodule", "--quiet", "add", str(folder), "inner")
    git(tmp_path / "outer", "commit", "--quiet", "-m", "first")
    git(tmp_path, "clone", "--quiet", str(tmp_path / "outer"), "clone")
    clone = tmp_path / "clone"
    git(clone, "clone", "--quiet", str(folder), "library")
    (clone / "weights.bin").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:41aa\nsize 9\n"
    )
    (clone / "gone.py").write_text("")
    git(clone, "add", "weights.bin", "gone.py")
    (clone / "gone.py").unlink()
    found = list_files(clone)
    assert found.untracked == ("library/",)
    assert list_files(clone, ["library"]).untracked == ()
    session: Any = SimpleNamespace(progress=SimpleNamespace(log=(lines := list[str]()).append))
    submit._log_folder(session, clone, found, pack(clone, found.names), 0.1)
    for message in (
        "checked out: inner (git submodule",
        "no file: gone.py",
        "LFS: weights.bin",
        "track it: library/",
    ):
        assert message in "\n".join(lines)


def test_a_clone_inside_a_plain_folder_is_sent_whole(folder: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "train.py").write_text("print(1)\n")
    git(plain, "clone", "--quiet", str(folder), "library")
    (plain / "library" / ".gitignore").write_text("*.sh\n")
    names = list_files(plain).names
    assert {"train.py", "library/train.py", "library/lib/model.py"} < set(names)
    assert not [name for name in names if name.endswith((".sh", "/")) or "/.git/" in name]


def test_without_git_all_files_are_packed_that_nothing_ignores(tmp_path: Path) -> None:
    for name in ("train.py", "a.log", "data/big.bin", "data/keep.txt", "sub/b.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("*.log\n!sub/b.log\n")
    (tmp_path / ".trainyardignore").write_text("data/*\n!data/keep.txt\n")
    found = list_files(tmp_path)
    assert sorted(found.names) == [".gitignore", ".trainyardignore", "data/keep.txt", "sub/b.log", "train.py"]
    assert (found.commit, found.dirty, found.untracked) == ("", False, ())


def test_tracked_files_can_be_excluded(folder: Path) -> None:
    (folder / ".trainyardignore").write_text("lib/\n")
    assert "lib/model.py" not in list_files(folder).names


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".env", "A=1"),
        ("conf/.env.local", "A=1"),
        ("id_rsa", "s3same"),
        ("tls.key", "s3same"),
        ("a.txt", KEY),
    ],
)
def test_files_that_look_like_secrets_are_refused_unless_they_are_listed(
    folder: Path, name: str, content: str
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(content)
    git(folder, "add", "-f", name)
    problem = problem_of(lambda: packed(folder))
    assert (problem.path, problem.got) == (name, "a file that looks like a secret")
    assert content not in str(problem)
    assert name in entries(packed(folder, name))


def test_certificates_and_examples_do_not_count_as_secrets(folder: Path) -> None:
    (folder / "ca.pem").write_text("-----BEGIN CERTIFICATE-----\n")
    (folder / ".env.example").write_text("A=\n")
    git(folder, "add", ".")
    assert {"ca.pem", ".env.example"} <= set(entries(packed(folder)))


def test_links_to_outside_and_secrets_are_reported_at_once(folder: Path) -> None:
    (folder / "data").symlink_to("/data")
    (folder / "lib" / "up").symlink_to("../../other")
    (folder / "lib" / "down").symlink_to("../train.py")
    (folder / ".env").write_text("A=1")
    git(folder, "add", "-f", ".")
    assert [each.path for each in problems_of(lambda: packed(folder))] == [".env", "data", "lib/up"]


def test_files_that_fill_a_pods_memory_are_refused_before_they_are_sent(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of one byte takes a page of the pod's memory, and two records of 512 bytes in the pack."""
    for number in range(20):
        (folder / f"small-{number}").write_text("1")
    names = [f"small-{number}" for number in range(20)]
    monkeypatch.setattr(packing, "MAX_UNPACKED", 20 * (4096 + 2 * 512))
    assert pack(folder, names).num_files == 20
    monkeypatch.setattr(packing, "MAX_UNPACKED", 20 * (4096 + 2 * 512) - 1)
    with pytest.raises(InputError, match=r"20 files, which take 0\.1 MiB in the memory of each pod"):
        pack(folder, names)


def test_too_large_a_pack_is_refused_with_its_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "weights.bin").write_bytes(bytes(3 << 20))
    git(folder, "add", ".")
    monkeypatch.setattr(packing, "MAX_BYTES", 1 << 20)
    with pytest.raises(InputError, match=r"the largest: weights\.bin \(3\.0 MiB\)"):
        packed(folder)
