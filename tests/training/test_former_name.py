"""The former names `python -m training.…`, still in manifests, start the commands of `trainyard_train`."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.training.launch import settings

COMMANDS = {
    "__main__": "__main__",
    "train": "train",
    "tune": "tune",
    "by_deepspeed": "by_deepspeed",
    "text": "data.text",
    "pictures": "data.pictures",
    "stage": "data.stage",
    "report": "observability.report",
    "mpi_hello": "launchers.mpi_hello",
}


@pytest.mark.parametrize(("former", "name"), COMMANDS.items())
def test_a_commands_former_name_starts_the_same_file(former: str, name: str) -> None:
    old, new = find_spec(f"training.{former}"), find_spec(f"trainyard_train.{name}")
    assert old
    assert new
    assert old.origin == new.origin


@pytest.mark.parametrize("launcher", [["-m"], ["-m", "torch.distributed.run", "--nproc-per-node=1", "-m"]])
def test_a_run_by_the_former_name_trains_to_its_end(tmp_path: Path, launcher: list[str]) -> None:
    command = [sys.executable, *launcher, "training.train", *settings(tmp_path, steps=2)]
    subprocess.run(command, check=True)
    assert (tmp_path / "final.json").exists()


def test_a_former_name_ends_with_the_same_exit_code() -> None:
    command = [sys.executable, "-m", "training.train", "--set=run_dir=/tmp/x", "--set=stepz=60"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (2, "training: stepz: got 60, but there is no such setting\n")
