"""The command `trainyard_train.train`: wrong settings are reported with the exit code for "do not retry"."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.processes import free_port
from tests.training.launch import events
from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.checkpointing.checkpoint import FORMAT
from trainyard_train.contract import FILE

TWO_RANKS = ["--nproc-per-node=2"]
MODULE = ("-m", "trainyard_train.train")


def refused(
    run_dir: Path, *settings: str, more: list[str] | None = None, script: Sequence[str] = MODULE
) -> str:
    """Run the command, which must refuse its settings; return its error output."""
    chosen = [f"run_dir={run_dir}", "steps=4", "seed=7", "model.hidden=16", *settings]
    arguments = [part for text in chosen for part in ("--set", text)]
    command = [sys.executable, *script, *arguments, *(more or [])]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_every_problem_of_the_settings_is_reported_and_nothing_is_made(tmp_path: Path) -> None:
    message = refused(tmp_path / "run", "steps=0", "stpes=3", "model.name=gpt5")
    assert "training: steps: got 0" in message
    assert "training: stpes: got 3, but there is no such setting" in message
    assert "training: model.name: got 'gpt5'" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("settings", "more", "message"),
    [
        (["parallel.min_ranks=2"], [], "parallel: got 1 ranks; allowed: 2 or more; start so many"),
        (["parallel.max_ranks=1"], TWO_RANKS, "parallel: got 2 ranks; allowed: 1 to 1; start so many"),
        (["parallel.shard=3", "strategy=fsdp"], TWO_RANKS, "parallel.shard: got 3; allowed: a divisor of"),
    ],
)
def test_a_number_of_ranks_that_does_not_fit_the_settings_is_refused(
    tmp_path: Path, settings: list[str], more: list[str], message: str
) -> None:
    assert f"training: {message}" in refused(tmp_path, *settings, more=more)


def test_a_backend_that_is_not_available_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rank = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    for name, value in {**rank, "CUDA_VISIBLE_DEVICES": ""}.items():
        monkeypatch.setenv(name, value)
    assert "training: backend: got 'nccl', but this process sees no GPU" in refused(tmp_path, "backend=nccl")
    assert "training: backend: got 'mpi': it was removed; use auto" in refused(tmp_path, "backend=mpi")


WITHOUT_NETWORK = """
import sys
import torch.distributed as dist
from trainyard_train import train, trainer
def run(*_):
    raise dist.DistBackendError(
        "NCCL error in: NCCLUtils.cpp:94, invalid usage, NCCL version 2.30.7\\n"
        "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\\nLast error:\\n"
        "Failed to initialize any NET plugin"
    )
trainer.Trainer.run = run
train.main(sys.argv[1:])
"""


def test_a_network_that_nccl_does_not_find_is_wrong_configuration_and_no_failed_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_NET", "IB")
    assert "training: NCCL_NET: got 'IB', but NCCL finds no such network" in refused(
        tmp_path, script=("-c", WITHOUT_NETWORK)
    )


LATE_CLEAN_UP = """
import os, sys, time
import psutil
from trainyard_train import train
from trainyard_train.checkpointing.folder_store import FolderStore
clean_up = FolderStore.clean_up
def late(store, order):
    while len(psutil.Process(os.getppid()).children()) > 1:
        time.sleep(0.05)
    time.sleep(3.5)
    clean_up(store, order)
FolderStore.clean_up = late
train.main(sys.argv[1:])
"""
"""A clean-up that begins once the other rank has ended, and takes longer than `timeouts.silence`."""


@pytest.mark.ranks
def test_only_rank_0_waits_for_a_slow_clean_up_and_all_ranks_succeed(tmp_path: Path) -> None:
    chosen = [
        *(f"run_dir={tmp_path}", "steps=20", "model.hidden=16", "checkpoint.every_steps=1"),
        *("checkpoint.keep_last=1", "timeouts.save=60", "timeouts.silence=3", "restarts=0"),
    ]
    arguments = [*TWO_RANKS, *(part for text in chosen for part in ("--set", text))]
    command = [sys.executable, "-c", LATE_CLEAN_UP, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not events(tmp_path, "failed")
    left = {path.name for path in (tmp_path / "checkpoints").iterdir()} - {"lock", "owner"}
    assert left == {"latest", "step-00000020"}


def test_a_checkpoint_of_another_configuration_is_refused_and_retained(tmp_path: Path) -> None:
    assert not train(configure(tmp_path), NoticeAt(3))
    before = (tmp_path / FILE).read_text()
    message = refused(tmp_path, "seed=9")
    assert "step-00000004 in" in message
    assert "belongs to another run; choose another run_dir, or change:" in message
    assert "training: seed: the checkpoint has 7, the configuration 9" in message
    assert (tmp_path / "checkpoints" / "step-00000004" / "manifest.json").exists()
    assert (tmp_path / FILE).read_text() == before


def test_a_checkpoint_of_another_version_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("trainyard_train.checkpointing.checkpoint.FORMAT", FORMAT + 1)
        assert not train(configure(tmp_path), NoticeAt(3))
    message = refused(tmp_path)
    assert f"got format {FORMAT + 1}; allowed: {FORMAT}, the format of this version of the package" in message
    assert "update this package" in message
    assert (tmp_path / "checkpoints" / "step-00000004" / "manifest.json").exists()
