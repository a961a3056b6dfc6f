"""A folder is packed in a process beside the command, with the result and the errors of a call."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from engine.paths import REPOSITORY, START
from infra.errors import ExitCode, HostError, InputError
from trainyard import cli
from trainyard.source.files import list_files
from trainyard.source.pack import pack
from trainyard.source.packing import Packing


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with modules that have the names of ours and of Python's."""
    made = tmp_path / "code"
    for name in ("train.py", "infra/__init__.py", "trainyard/__init__.py", "pickle.py", "tarfile.py"):
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_text("raise SystemExit('imported')\n")
    (made / "notes.txt").write_text("x\n")
    (made / ".gitignore").write_text("*.txt\n")
    return made


def test_the_pack_is_that_of_a_call_in_this_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    listing = list_files(folder, ["notes.txt"])
    here = pack(folder, listing.names, ["notes.txt"])
    with Packing(folder) as packing:
        packing.include(["notes.txt"])
        code = packing.code()
        assert (code.listing, code.pack.digest) == (listing, here.digest)
        assert (code.pack.num_files, code.pack.num_bytes) == (here.num_files, here.num_bytes)
        assert code.pack.compressed().read() == here.compressed().read()


def test_its_errors_are_those_of_a_call(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "id_rsa").write_text("x\n")
    with Packing(folder) as packing, pytest.raises(InputError) as refused:
        packing.include([])
        packing.code()
    (problem,) = refused.value.problems
    assert (problem.path, refused.value.exit_code) == ("id_rsa", ExitCode.WRONG_INPUT)
    assert str(refused.value) == str(problem)
    with Packing(folder) as packing:
        packing.include(["id_rsa"])
        assert "id_rsa" in packing.code().listing.names
    monkeypatch.setenv("PATH", "/nowhere")
    with Packing(folder) as packing, pytest.raises(HostError, match="git: not installed"):
        packing.include([])
        packing.code()


def test_a_file_that_cannot_be_written_is_named(folder: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-P",
        str(REPOSITORY / START),
        "trainyard.source.packing",
        str(folder),
        str(tmp_path / "gone"),
    ]
    asked = pickle.dumps(())
    error = pickle.loads(subprocess.run(command, input=asked, stdout=subprocess.PIPE, check=True).stdout)
    assert isinstance(error, FileNotFoundError)
    assert error.filename == str(tmp_path / "gone" / "archive")


@pytest.mark.parametrize("is_asked", [False, True])
def test_nothing_remains_of_it_when_the_command_ends_first(folder: Path, is_asked: bool) -> None:
    with Packing(folder) as packing:
        if is_asked:
            packing.include([])
        process, output = psutil.Process(packing._process.pid), Path(packing._output.name)
        assert output.is_dir()
    assert not output.exists()
    assert not process.is_running()


def test_it_ends_where_the_job_does_not_take_the_folder(folder: Path) -> None:
    with Packing(folder) as packing:
        process = psutil.Process(packing._process.pid)
        packing.stop()
        assert not process.is_running()


def test_nothing_remains_of_it_when_the_options_are_wrong(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("sys.argv", ["trainyard", "run", "--gpus", "two"])
    before = psutil.Process().children()
    with pytest.raises(SystemExit):
        cli.main()
    assert psutil.Process().children() == before
    assert not list((tmp_path / "temporary").iterdir())


def test_it_starts_before_the_options_are_read(folder: Path) -> None:
    program = """
import sys, trainyard_start
trainyard_start.put_tree_first()
from trainyard import cli
from trainyard.source import packing
class Started(BaseException): ...
def start(*_): raise Started
packing.Packing.__init__ = start
sys.argv = ["trainyard", "run", "--", "python", "train.py"]
try:
    cli.main()
except Started:
    print("pydantic" in sys.modules)
"""
    command = [sys.executable, "-P", "-c", program]
    assert subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=True).stdout == b"False\n"
