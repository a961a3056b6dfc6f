"""Locks of files: who holds one, and that it ends with its process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.locks import LockHeldError, hold, is_held
from engine.paths import REPOSITORY

HOLDER = """
import sys; from pathlib import Path; from engine.locks import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_held_lock_names_process_command_and_time(tmp_path: Path) -> None:
    file = tmp_path / "a.lock"
    with hold(file):
        held = rf"process {os.getpid()} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d\d:\d\d: \S"
        with pytest.raises(LockHeldError, match=held), hold(file):
            pass
        assert is_held(file)
    assert not is_held(file)
    with hold(file):
        assert file.read_text().count("process") == 1


def test_a_lock_ends_with_its_process_and_is_not_inherited(tmp_path: Path) -> None:
    file = tmp_path / "a.lock"
    command = [sys.executable, "-c", HOLDER, str(file)]
    holder = subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(LockHeldError, match=f"process {holder.pid} since"), hold(file):
        pass
    holder.kill()
    holder.wait()
    with hold(file):
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
    try:
        assert not is_held(file)
    finally:
        child.kill()
        child.wait()


def test_a_file_that_does_not_exist_is_not_held(tmp_path: Path) -> None:
    assert not is_held(tmp_path / "a.lock")
