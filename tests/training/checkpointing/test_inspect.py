"""`python -m trainyard_train checkpoint`: lists, verifies and compares the checkpoints of a run."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.__main__ import main
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.inspect import _difference


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    train(configure(path))
    return path


def test_ls_shows_each_checkpoint(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "ls", str(run_dir)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:]] == [
        ["24", "2400", "1"],
        ["20", "2000", "1"],
        ["15", "1500", "1"],
    ]


def test_verify_finds_what_was_altered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(configure(tmp_path), NoticeAt(12))
    assert main(["checkpoint", "verify", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "step-00000013: intact",
        "step-00000010: intact",
        "step-00000005: intact",
    ]
    (tmp_path / "checkpoints" / "step-00000010" / "rank-00000.safetensors").write_bytes(b"")
    (tmp_path / "checkpoints" / "step-00000005" / "manifest.json").write_text("{")
    assert main(["checkpoint", "verify", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "step-00000010: damaged: rank-00000.safetensors has 0 bytes" in out
    assert "step-00000005: damaged: manifest.json cannot be read" in out
    assert main(["checkpoint", "ls", str(tmp_path)]) == 0
    assert "step-00000005: damaged" in capsys.readouterr().out


def test_diff_is_empty_for_the_same_and_names_what_differs(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(configure(tmp_path), NoticeAt(9))
    train(configure(tmp_path))
    assert main(["checkpoint", "diff", str(run_dir), str(tmp_path)]) == 0
    assert "equal bit for bit" in capsys.readouterr().out
    earlier = run_dir / "checkpoints" / "step-00000015"
    assert main(["checkpoint", "diff", str(run_dir), str(earlier)]) == 1
    assert "model.1.weight: differs by up to" in capsys.readouterr().out


def test_diff_names_tensors_that_only_one_has_or_of_another_shape(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(configure(tmp_path, steps=2, model={"name": "mlp", "hidden": 8}, optim={"momentum": 0}))
    assert main(["checkpoint", "diff", str(run_dir), str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "optimizer.1.weight.momentum_buffer: only in the first" in out
    assert "model.1.weight: torch.float32 (16, 64), torch.float32 (8, 64)" in out


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("values", [[1.0, NAN, INF], [], 3, [True, False], [1j]])
def test_a_tensor_equals_its_copy_bit_for_bit(values: Any) -> None:
    assert _difference("w", torch.tensor(values), torch.tensor(values)) == ""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.uint16, torch.uint64])
def test_types_with_few_operations_are_compared_too(dtype: torch.dtype) -> None:
    one, other = torch.tensor([1, 2]).to(dtype), torch.tensor([1, 4]).to(dtype)
    assert _difference("w", one, one.clone()) == ""
    assert _difference("w", one, other) == "w: differs by up to 2"


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ([0.0], [-0.0], "equal values with different bits: the signs of zeros, or NaNs"),
        ([2**53], [2**53 + 1], "differs by up to 1"),
        ([-(2**63)], [2**63 - 1], "differs by up to 18446744073709551615"),
        ([True], [False], "differs by up to 1"),
        ([NAN, INF, 1.0], [NAN, INF, 1.5], "differs by up to 0.5"),
        ([NAN, INF, 1.0], [0.0, -INF, 1.5], "differs by up to 0.5, differs by NaN or infinity in 2"),
        ([NAN], [0.0], "differs by NaN or infinity in 1"),
        ([1 + 1j], [1 + 3j], "differs by up to 2"),
    ],
)
def test_diff_gives_the_largest_difference_that_is_one(one: Any, other: Any, message: str) -> None:
    assert _difference("w", torch.tensor(one), torch.tensor(other)) == f"w: {message}"


@pytest.mark.parametrize("command", ["ls", "verify"])
def test_a_folder_that_is_no_run_is_reported(
    tmp_path: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", command, str(tmp_path)]) == 1
    assert "is not a run's folder" in capsys.readouterr().err


def test_a_checkpoint_that_cannot_be_read_is_told_from_a_damaged_one_and_a_kept_one_from_others(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = FolderStore(run_dir / "checkpoints")
    newest, older, *_ = store.committed()
    monkeypatch.setattr(FolderStore, "pins", lambda _: {older: {"reason": "for the paper"}})
    read = FolderStore.read

    def failing(store: FolderStore, name: str) -> bytes:
        if name.startswith(f"step-{newest:08d}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), name)
        return read(store, name)

    monkeypatch.setattr(FolderStore, "read", failing)
    assert main(["checkpoint", "ls", str(run_dir)]) == 0
    assert main(["checkpoint", "verify", str(run_dir)]) == 1
    output = capsys.readouterr().out
    assert output.count(f"step-{newest:08d}: cannot be read: [Errno 5] Input/output error") == 2
    assert "  kept: for the paper\n" in output
    assert f"step-{older:08d}: intact" in output
