"""metrics.jsonl survives kills and full disks, and repeated steps count once."""

import errno
import os
import time
from pathlib import Path

import pytest

from trainyard_train.contract import FILE, read_metrics, surviving_steps
from trainyard_train.observability.metrics import MetricsLog


def test_every_attempt_has_its_number(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        log = MetricsLog(tmp_path)
        log.write("started", step=0)
        assert log.attempt == attempt
    assert [line["attempt"] for line in read_metrics(tmp_path / FILE)] == [1, 2, 3]


def test_a_line_that_a_kill_cut_short_corrupts_no_other(tmp_path: Path) -> None:
    MetricsLog(tmp_path).write("started", step=0)
    path = tmp_path / FILE
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole + whole[:length])
        log = MetricsLog(tmp_path)
        log.write("resumed", step=1)
        events = [line["event"] for line in read_metrics(path)]
        assert events in (["started", "resumed"], ["started", "started", "resumed"])


def test_repeated_steps_count_once_as_they_were_last() -> None:
    lines = [
        {"event": "step", "attempt": 1, "step": 1, "loss": 3},
        {"event": "step", "attempt": 1, "step": 2, "loss": 2},
        {"event": "checkpoint", "attempt": 1, "step": 1},
        {"event": "step", "attempt": 2, "step": 2, "loss": 1},
    ]
    assert [(line["step"], line["loss"]) for line in surviving_steps(lines)] == [(1, 3), (2, 1)]


def test_a_full_disk_costs_lines_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    log = MetricsLog(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        log.write("step", step=1)
        log.write("step", step=2)
    log.write("step", step=3)
    assert capsys.readouterr().err.count("No space left on device") == 1
    assert [line["step"] for line in read_metrics(tmp_path / FILE)] == [3]


def test_a_line_that_a_full_disk_cut_short_corrupts_no_other_and_prevents_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write = os.write
    room = 20

    def almost_full(descriptor: int, data: bytes) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken, room = min(room, len(data)), max(0, room - len(data))
        return write(descriptor, data[:taken])

    log = MetricsLog(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", almost_full)
        log.write("step", step=1)
        later = MetricsLog(tmp_path)
        later.write("step", step=2)
    log.write("step", step=3)
    later.write("step", step=4)
    assert capsys.readouterr().err.count("No space left on device") == 2
    assert [line["step"] for line in read_metrics(tmp_path / FILE)] == [3, 4]


@pytest.mark.parametrize("moved", [-7200.0, 86400.0])
def test_a_clock_that_jumps_is_reported_once_and_moves_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], moved: float
) -> None:
    log = MetricsLog(tmp_path)
    log.write("started", step=0)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + moved)
    for step in (1, 2):
        log.write("step", step=step)
    lines = read_metrics(tmp_path / FILE)
    assert [line["event"] for line in lines] == ["started", "clock", "step", "step"]
    assert lines[1]["moved_seconds"] == pytest.approx(moved, abs=1)
    assert 0 <= lines[-1]["time"] - lines[0]["time"] < 10
    assert f"clock jumped by {moved:+.1f} s; check its time service" in capsys.readouterr().err


def test_a_run_without_a_log_has_no_lines(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / FILE) == []
