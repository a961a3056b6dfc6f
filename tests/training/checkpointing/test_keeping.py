"""Checkpoints that are kept by a reason, by a metric, or by their step, whatever the retention is."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.training.launch import events
from tests.training.s3 import BUCKET, Proxy, s3
from tests.training.test_trainer import configure, train
from trainyard_train import Run
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.saver import SaveError
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.config_base import ConfigError
from trainyard_train.parallelism.mesh import Mesh

__all__ = ["s3"]


def start(run_dir: Path, **settings: Any) -> Run:
    mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
    run = Run(run_dir, mesh, **{"every_steps": 1, "keep_last": 1, **settings})
    run.load()
    return run


def steps_of(run: Run) -> list[int]:
    run.saver.wait_for_clean_up(60)
    return run.saver.store.committed()


def measure(run: Run, values: Mapping[int, float], **others: float) -> None:
    """Take a step for each value."""
    while run.steps < max(values):
        run.step()
        if (value := values.get(run.steps)) is not None:
            run.measured(accuracy=value, **others)
    run.save()


def test_a_kept_checkpoint_outlives_the_retention_and_a_restart(tmp_path: Path) -> None:
    run = start(tmp_path)
    measure(run, {3: 0.0})
    run.keep("sent to the customer")
    measure(run, {6: 0.0})
    assert steps_of(run) == [6, 3]
    run.close()
    run = start(tmp_path)
    measure(run, {8: 0.0})
    assert steps_of(run) == [8, 3]
    assert run.saver.store.pins() == {3: {"reason": "sent to the customer"}}
    run.close()


def test_the_best_checkpoints_are_kept_and_a_better_one_replaces_the_worst(tmp_path: Path) -> None:
    settings = {"every_steps": 100, "keep_best": {"metric": "accuracy", "n": 2}}
    run = start(tmp_path, **settings)
    measure(run, {2: 0.5, 3: 0.9, 4: math.nan, 5: 0.2, 7: 0.7})
    assert steps_of(run) == [7, 3], "5 was not saved, and 2 was replaced by 7"
    run.close()
    run = start(tmp_path, **settings)
    measure(run, {9: 0.8, 12: 0.1})
    assert steps_of(run) == [12, 9, 3], "values are known after a restart"
    assert [line["accuracy"] for line in events(tmp_path, "measured")][-2:] == [0.8, 0.1]
    run.close()


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"metric": "accuracy", "mode": "min"}, 4),
        ({"metric": "eval_loss"}, 2),
        ({"metric": "eval_loss", "mode": "max"}, 2),
    ],
)
def test_the_smallest_value_is_best_where_the_metric_is_a_loss_or_the_user_says_so(
    tmp_path: Path, settings: dict[str, Any], kept: int
) -> None:
    run = start(tmp_path, every_steps=100, keep_best=settings)
    measure(run, {2: 0.5, 4: 0.1, 6: 0.9}, eval_loss=1.0)  # of equal values, the first one is kept
    assert steps_of(run) == [6, kept]
    run.close()


def test_a_wrong_setting_of_the_best_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keep_best\.n: got 0"):
        start(tmp_path, keep_best={"metric": "loss", "n": 0})


def test_every_nth_checkpoint_is_kept_by_a_run(tmp_path: Path) -> None:
    run = start(tmp_path, keep_every=3)
    measure(run, {8: 0.0})
    assert steps_of(run) == [8, 6, 3]
    run.close()


def test_the_trainer_keeps_the_step_with_the_best_evaluation(tmp_path: Path) -> None:
    train(
        configure(
            tmp_path,
            steps=50,
            checkpoint={"every_steps": 5, "keep_last": 1, "keep_best": {"metric": "accuracy"}},
        )
    )
    accuracies = {line["step"]: line["accuracy"] for line in events(tmp_path, "evaluation")}
    best = min(step for step, each in accuracies.items() if each == max(accuracies.values()))
    assert FolderStore(tmp_path / "checkpoints").committed() == sorted({50, best}, reverse=True)


def test_a_pin_that_cannot_be_written_is_an_error_for_the_one_who_asked_and_no_end_for_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    put = FolderStore.put

    def failing(store: FolderStore, name: str, data: bytes) -> None:
        if name.endswith("pin.json"):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), name)
        put(store, name, data)

    monkeypatch.setattr(FolderStore, "put", failing)
    run = start(tmp_path, keep_best={"metric": "accuracy"})
    measure(run, {2: 0.5})
    with pytest.raises(SaveError, match=r"Read-only file system.*mounted read-only"):
        run.keep("best")
    assert "step 2 is not kept as one with the best accuracy: " in capfd.readouterr().err
    run.close()


def test_a_pin_in_an_object_store_outlives_the_retention_and_the_collection_of_garbage(
    tmp_path: Path, s3: Proxy
) -> None:
    url = f"s3://{BUCKET}/{tmp_path.name}"
    run = start(tmp_path, store=url, keep_best={"metric": "accuracy"})
    measure(run, {2: 0.5, 5: 0.1})
    run.close()
    run = start(tmp_path, store=url, keep_best={"metric": "accuracy"})
    measure(run, {6: 0.7, 8: 0.1})
    assert steps_of(run) == [8, 6]
    assert open_store(url).pinned() == {6}
    run.close()
