"""The plot of a run's steps, with its interruptions and the steps that they cost."""

from pathlib import Path

import pytest

from trainyard_train.observability.report import draw_learning_curve, interruptions


def step(attempt: int, number: int, time: float) -> dict[str, object]:
    return {
        "event": "step",
        "attempt": attempt,
        "step": number,
        "time": time,
        "loss": 1 / number,
        "accuracy": 0.5,
    }


LINES = [
    {"event": "started", "attempt": 1, "step": 0, "time": 0.0, "world_size": 2},
    *(step(1, number, number) for number in range(1, 8)),
    {"event": "resumed", "attempt": 2, "step": 5, "time": 20.0, "world_size": 2},
    *(step(2, number, 20 + number) for number in range(6, 10)),
    {"event": "evaluation", "attempt": 2, "step": 8, "time": 28.5, "loss": 0.1, "accuracy": 0.9},
    {"event": "notice", "attempt": 2, "step": 9, "time": 29.5},
    {"event": "started", "attempt": 3, "step": 0, "time": 35.0, "world_size": 2},
    {"event": "resumed", "attempt": 4, "step": 9, "time": 40.0, "world_size": 1},
    step(4, 10, 42.0),
]


def test_interruptions_have_the_lost_steps_and_the_duration() -> None:
    killed, preempted = interruptions(LINES)
    assert killed.label == "failed without notice\n19 s, 2 steps repeated"
    assert preempted.label == "preempted\n13 s, 0 steps repeated"


def test_the_plot_is_written(tmp_path: Path) -> None:
    picture = tmp_path / "curve.png"
    draw_learning_curve("run-001", LINES, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_run_without_steps_has_no_plot(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no step yet"):
        draw_learning_curve("run-001", [], tmp_path / "curve.png")
