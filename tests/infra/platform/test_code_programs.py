"""What takes code into a team's store, and what unpacks it in each pod."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from infra.platform.programs import program
from trainyard.member.pack import Pack, pack


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
    command = [sys.executable, "-Ic", program("receive_code.py"), str(store), digest]
    return subprocess.run(command, input=sent, capture_output=True, check=False)


def given(code: Pack) -> bytes:
    sent = code.compressed().read()
    return b"%d\n" % len(sent) + sent


def unpack(store: Path, folder: Path, digest: str) -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-IS", "-c", program("unpack_code.py"), str(store), str(folder)]
    told = {"TRAINYARD_CODE": digest, "TERMINATION_LOG": str(folder / "said")}
    return subprocess.run(command, env=told, capture_output=True, text=True, check=False)


def test_code_is_stored_once_and_unpacked_as_it_was(code: Pack, tmp_path: Path) -> None:
    store, folder = tmp_path / "store", tmp_path / "pod"
    assert receive(store, code.digest, given(code)).stdout == b"send\nstored\n"
    assert receive(store, code.digest, b"").stdout == b"stored\n", "it is there: nothing is sent"
    assert [each.name for each in store.iterdir()] == [f"{code.digest.removeprefix('sha256:')}.tar.gz"]
    for _ in range(2):  # a container may be started twice
        assert unpack(store, folder, code.digest).returncode == 0
    found = folder / "code"
    assert (found / "train.py").read_text() == "print(1)\n"
    assert os.access(found / "link", os.X_OK) and (found / "link").is_symlink()
    assert (found / os.fsdecode(b"caf\xe9")).exists()
    assert sorted(each.name for each in folder.iterdir()) == ["code"]


@pytest.mark.parametrize("cut", [0, 2, 40], ids=lambda cut: f"after {cut} bytes")
def test_a_connection_that_breaks_off_leaves_nothing(code: Pack, tmp_path: Path, cut: int) -> None:
    done = receive(tmp_path / "store", code.digest, given(code)[:cut])
    assert done.returncode != 0
    assert list((tmp_path / "store").iterdir()) == []


def test_bytes_of_another_digest_are_not_stored(code: Pack, tmp_path: Path) -> None:
    done = receive(tmp_path / "store", "sha256:" + "0" * 64, given(code))
    assert done.returncode != 0 and b"not stored: these bytes are " + code.digest.encode() in done.stderr
    assert list((tmp_path / "store").iterdir()) == []


def test_a_pod_whose_code_was_changed_in_the_store_does_not_start(code: Pack, tmp_path: Path) -> None:
    store = tmp_path / "store"
    receive(store, code.digest, given(code))
    [file] = store.iterdir()
    file.chmod(0o600)
    for content, said in ((file.read_bytes()[:-20], "other bytes"), (b"no gzip", "cannot be read")):
        file.write_bytes(content)
        done = unpack(store, tmp_path / "pod", code.digest)
        assert done.returncode == 2 and said in done.stderr
        assert not (tmp_path / "pod" / "code").exists()
    file.unlink()
    assert "not in the team's store" in unpack(store, tmp_path / "pod", code.digest).stderr
    assert code.digest in (tmp_path / "pod" / "said").read_text()


def test_a_job_without_code_starts_as_it_did(tmp_path: Path) -> None:
    assert unpack(tmp_path / "store", tmp_path / "pod", "").returncode == 0
    assert list((tmp_path / "pod").iterdir()) == []
