"""The programs that store a pack of code in a team's volume, and that unpack it in each pod."""

import gzip
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from infra.platform.programs import program, unpacking
from trainyard.source.pack import Pack, pack


@pytest.fixture
def code(tmp_path: Path) -> Pack:
    folder = tmp_path / "folder"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("print(1)\n")
    (folder / "lib" / "run.sh").write_text("#!/bin/sh\n")
    (folder / "lib" / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("lib/run.sh")
    (folder / os.fsdecode(b"caf\xe9")).write_text("e\n")
    return pack(folder, [str(each.relative_to(folder)) for each in folder.rglob("*")])


def receive(store: Path, digest: str, sent: bytes) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-Ic", program("receive_code.py"), str(store)]
    return subprocess.run(command, input=f"{digest}\n".encode() + sent, capture_output=True, check=False)


def given(code: Pack) -> bytes:
    sent = code.compressed().read()
    return b"%d\n" % len(sent) + sent


def unpack(
    store: Path, folder: Path, digest: str, *, path: str = os.environ["PATH"], inside: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Unpack as a pod does, and return where the command starts."""
    folder.mkdir(exist_ok=True)
    program_of = [*unpacking()[:-2], str(store), str(folder / "code")]
    variables = {"TRAINYARD_CODE": digest, "TERMINATION_LOG": str(store.parent / "message"), "PATH": path}
    command = [*inside, *program_of, "/bin/pwd"]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False, cwd=folder)


def test_code_is_stored_once_and_unpacked_unchanged(code: Pack, tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "pod"
    assert receive(store, code.digest, given(code)).stdout == b"send\nstored\n"
    assert receive(store, code.digest, b"").stdout == b"stored\n", "it exists, so nothing is sent"
    assert [each.name for each in store.iterdir()] == [f"{code.digest.removeprefix('sha256:')}.tar.gz"]
    found = folder / "code"
    for _ in range(2):  # a container may be restarted
        assert unpack(store, folder, code.digest).stdout == f"{found}\n"
    assert (found / "train.py").read_text() == "print(1)\n"
    assert os.access(found / "link", os.X_OK) and (found / "link").is_symlink()
    assert (found / os.fsdecode(b"caf\xe9")).exists()
    assert sorted(each.name for each in folder.iterdir()) == ["code"]
    modes = {each.name: each.stat().st_mode & 0o777 for each in (found, *found.rglob("*"))}
    executable = {"code", "lib", "run.sh", "link"}
    assert modes == {name: 0o555 if name in executable else 0o444 for name in modes}


@pytest.mark.parametrize("cut", [0, 2, 40], ids=lambda cut: f"after {cut} bytes")
def test_a_connection_that_breaks_off_leaves_nothing(code: Pack, tmp_path: Path, cut: int) -> None:
    done = receive(tmp_path / "store", code.digest, given(code)[:cut])
    assert done.returncode != 0
    assert list((tmp_path / "store").iterdir()) == []


def test_bytes_of_another_digest_are_not_stored(code: Pack, tmp_path: Path) -> None:
    done = receive(tmp_path / "store", "sha256:" + "0" * 64, given(code))
    assert done.returncode != 0 and b"not stored: these bytes are " + code.digest.encode() in done.stderr
    assert list((tmp_path / "store").iterdir()) == []


@pytest.mark.parametrize("digest", ["sha256:../../etc/passwd", ""])
def test_an_invalid_digest_is_refused(code: Pack, tmp_path: Path, digest: str) -> None:
    done = receive(tmp_path / "store", digest, given(code))
    assert done.returncode != 0 and b"no digest was given" in done.stderr
    assert not (tmp_path / "store").exists()


def test_a_pod_whose_code_was_changed_in_the_store_does_not_start(code: Pack, tmp_path: Path) -> None:
    store = tmp_path / "store"
    receive(store, code.digest, given(code))
    [file] = store.iterdir()
    file.chmod(0o600)
    broken = (
        (gzip.compress(b"others"), "has other bytes by that name"),
        (b"no gzip", "cannot be read: gzip: "),
    )
    for content, message in (*broken, (file.read_bytes()[:-20], "unexpected end of file")):
        file.write_bytes(content)
        done = unpack(store, tmp_path / "pod", code.digest)
        assert done.returncode == 2 and message in done.stderr
        assert not (tmp_path / "pod" / "code").exists()
    file.unlink()
    assert "not in the team's store" in unpack(store, tmp_path / "pod", code.digest).stderr
    assert code.digest in (tmp_path / "message").read_text()


def test_a_job_without_code_starts_in_its_working_folder(tmp_path: Path) -> None:
    assert unpack(tmp_path / "store", tmp_path / "pod", "").stdout == f"{tmp_path / 'pod'}\n"
    assert list((tmp_path / "pod").iterdir()) == []


def test_an_image_or_a_runtime_that_cannot_unpack_is_reported(code: Pack, tmp_path: Path) -> None:
    store = tmp_path / "store"
    receive(store, code.digest, given(code))
    done = unpack(store, tmp_path / "pod", code.digest, path="/nowhere")
    message = "the image has no gzip, tar, sha256sum and no Python"
    assert (done.returncode, message in done.stderr) == (2, True)
    (tmp_path / "pod" / "code").symlink_to("/nowhere")  # root ignores the permissions of folders
    done = unpack(store, tmp_path / "pod", code.digest)
    assert (done.returncode, "bring the stack up again" in done.stderr) == (2, True)


@pytest.fixture
def without_tar(tmp_path: Path) -> str:
    """The PATH of an image that has Python and no tar."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("chmod", "gzip", "mkdir", "rm", "sha256sum"):
        (tools / name).symlink_to(str(shutil.which(name)))
    (tools / "python3").symlink_to(sys.executable)
    return str(tools)


def test_python_unpacks_where_the_image_has_no_tar(code: Pack, tmp_path: Path, without_tar: str) -> None:
    store, folder = tmp_path / "store", tmp_path / "pod"
    receive(store, code.digest, given(code))
    assert unpack(store, folder, code.digest, path=without_tar).stdout == f"{folder / 'code'}\n"
    modes = {each.name: each.lstat().st_mode & 0o777 for each in (folder / "code").iterdir()}
    assert modes == {"train.py": 0o444, "lib": 0o555, "link": 0o777, os.fsdecode(b"caf\xe9"): 0o444}
    assert (folder / "code" / "train.py").stat().st_mtime > time.time() - 60
    [file] = store.iterdir()
    file.chmod(0o600)
    for content, message in (
        (gzip.compress(b"others"), "has other bytes"),
        (b"no gzip", "Not a gzipped file"),
    ):
        file.write_bytes(content)
        done = unpack(store, folder, code.digest, path=without_tar)
        assert done.returncode == 2 and message in done.stderr
        assert list(folder.iterdir()) == []


SMALL = 'mount -t tmpfs -o size="$0" none "$1" && shift && exec "$@"'


@pytest.mark.parametrize("size", ["4k", "16k"], ids=["by the pack", "by its files"])
def test_code_that_fills_the_volume_is_reported_in_one_line(code: Pack, tmp_path: Path, size: str) -> None:
    store, folder = tmp_path / "store", tmp_path / "pod"
    receive(store, code.digest, given(code))
    folder.mkdir()
    on_small = ("unshare", "--map-root-user", "--mount", "sh", "-c", SMALL, size, str(folder))
    done = unpack(store, folder, code.digest, inside=on_small)
    assert (done.returncode, done.stdout) == (2, "")
    assert "fill the volume that they are unpacked on (1 GiB" in done.stderr and done.stderr.count("\n") == 1
    assert (tmp_path / "message").read_text() == done.stderr
