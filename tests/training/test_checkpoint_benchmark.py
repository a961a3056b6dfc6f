"""The benchmark of checkpoints: the time of a save, compared with steps of the same round without one."""

import pytest

from benchmarks.checkpoints import beyond


def test_a_save_costs_the_time_of_its_steps_beyond_the_rounds_steps_without_a_save() -> None:
    control = [{"total": 1.0, "steps": 10}, {"total": 1.2, "steps": 10}, {"total": 4.0, "steps": 10}] * 2
    control[4:] = [{"total": 2.0, "steps": 10}, {"total": 2.0, "steps": 10}]
    control[2:4] = [{"total": 4.0, "steps": 10}, {"total": 4.0, "steps": 20}]
    taken = [
        {"total": total, "steps": steps} for total, steps in ((1.5, 10), (1.1, 10), (8.0, 30), (8.0, 24))
    ]
    added = [each["total"] for each in beyond(taken, control, "total")]
    assert added == pytest.approx([0.4, 0.0, 0.0, 1.6])
