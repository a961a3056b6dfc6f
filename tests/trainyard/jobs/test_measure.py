"""`trainyard measure`: the time of a checkpoint, from a run's metrics, as the policies read it."""

import json
import os
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.errors import InputError, TrainyardError
from policies.config import Measurement
from trainyard.jobs.measure import assume, measure, measure_on_cluster


def metrics(folder: Path, *lines: dict[str, object]) -> Path:
    file = folder / "metrics.jsonl"
    file.write_text("".join(json.dumps({"attempt": 1, **line}) + "\n" for line in lines))
    return file


def test_the_longest_checkpoint_counts_with_its_day(tmp_path: Path) -> None:
    run = metrics(
        tmp_path,
        {"event": "step", "time": 1.0, "seconds": 90},
        {"event": "checkpoint", "time": 1795200000.0, "seconds": 8.5},
        {"event": "checkpoint", "time": 1795300000.0, "seconds": 41.25},
        {"event": "checkpoint_failed", "time": 1795300001.0},
    )
    file = measure(run, tmp_path / "Pulumi.aws.yaml")
    assert file == tmp_path / "checkpoint.aws.json"
    assert Measurement.read(file) == Measurement(41.25, date(2026, 11, 21))


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [{"event": "step", "time": 1.0}],
        [{"event": "checkpoint", "time": 1.0, "seconds": None}],
        [{"event": "checkpoint", "time": "now", "seconds": 1.0}],
    ],
)
def test_a_run_without_checkpoints_measures_nothing(lines: list[dict[str, object]], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no committed checkpoint"):
        measure(metrics(tmp_path, *lines), tmp_path / "Pulumi.aws.yaml")
    assert not (tmp_path / "checkpoint.aws.json").exists()


def test_an_assumption_is_marked_as_one(tmp_path: Path) -> None:
    found = Measurement.read(assume(60, tmp_path / "Pulumi.aws.yaml"))
    assert found is not None
    assert (found.seconds, found.is_assumed) == (60, True)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        measure(tmp_path / "gone.jsonl", tmp_path / "Pulumi.aws.yaml")
    with pytest.raises(InputError, match="no such file"):
        measure(tmp_path, tmp_path / "Pulumi.aws.yaml")


def on_this_host(runs: Path) -> Any:
    """Make a session of an embedded cluster, whose stack has the job `digits` of team `research`."""
    return SimpleNamespace(
        job=SimpleNamespace(team="research", name="digits", runtime=""),
        stack_file=runs / "Pulumi.local.yaml",
        is_on_host=True,
        run_root=lambda team, name: runs / team / name,
    )


def test_on_this_host_the_newest_run_counts(tmp_path: Path) -> None:
    for number, seconds in enumerate((7.5, 3.25)):
        run = tmp_path / "research" / "digits" / f"run-{number}"
        run.mkdir(parents=True)
        file = metrics(run, {"event": "checkpoint", "time": 1795300000.0, "seconds": seconds})
        os.utime(file, (number, number))
    file = measure_on_cluster(on_this_host(tmp_path))
    assert Measurement.read(file) == Measurement(3.25, date(2026, 11, 21))


def test_a_named_pipe_of_a_member_does_not_block_the_command(tmp_path: Path) -> None:
    run = tmp_path / "research" / "digits" / "run-1"
    run.mkdir(parents=True)
    os.mkfifo(run / "metrics.jsonl")
    with pytest.raises(TrainyardError, match="not a regular file"):
        measure_on_cluster(on_this_host(tmp_path))


def test_a_stack_without_a_run_measures_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no committed checkpoint"):
        measure_on_cluster(on_this_host(tmp_path))
