"""The benchmark of lost work: what a failure would cost, computed from the times of steps and checkpoints."""

import pytest

from benchmarks.lost import TRIAL_INTERVAL, LossRun, interval, seconds_added
from benchmarks.two_ranks import check_same_losses


def run(every: int, late: float, seconds: float = 1.0) -> LossRun:
    """Make a run of 100 steps with a checkpoint `every` steps, which is loadable `late` steps later."""
    steps = {step: seconds * step for step in range(20, 121)}
    saves = {step: seconds * (step + late) for step in range(20, 121, every) if step + late <= 120}
    return LossRun(steps, saves)


def test_a_failure_costs_half_the_interval_of_saves_and_their_delay() -> None:
    # A failure finds 0 to 19 steps since the checkpoint, half of 19 on average.
    assert run(every=20, late=0).repeated() == pytest.approx(9.5)
    assert run(every=4, late=0).repeated() == pytest.approx(1.5)
    assert run(every=4, late=2).repeated() == pytest.approx(1.5 + 2, abs=0.1)


def test_until_a_checkpoint_can_be_loaded_a_failure_costs_the_steps_since_the_previous_one() -> None:
    steps = {20: 0.0, 21: 1.0, 22: 2.0, 23: 7.0}
    assert LossRun(steps, {20: 0.0, 22: 6.0}).repeated() == pytest.approx((0 * 1 + 1 * 1 + 2 * 4 + 0 * 1) / 7)


def test_steps_that_are_done_before_a_checkpoint_can_be_loaded_are_counted() -> None:
    assert run(every=20, late=2.5).steps_under_way == 2
    assert run(every=20, late=0).steps_under_way == 0


def test_ours_saves_as_often_as_costs_no_more_time_and_not_before_a_save_is_done() -> None:
    assert interval(0.008, 0.01, under_way=0) == 4
    assert interval(0.0081, 0.01, under_way=0) == 5
    assert interval(0.0001, 0.01, under_way=3) == 3
    assert interval(0.08, 0.01, under_way=3) == 8 * TRIAL_INTERVAL, "slower saves are less frequent"
    assert interval(-0.001, 0.01, under_way=0) == 1
    with pytest.raises(ValueError, match="on a quiet machine"):
        interval(0.001, -0.01, under_way=0)


def test_the_time_that_saves_add_is_the_difference_to_runs_without() -> None:
    calm, saving = [run(20, 0, 1.0), run(20, 0, 2.0)], [run(20, 0, 1.1), run(20, 0, 2.3)]
    assert seconds_added(saving, calm) == pytest.approx((0.1, 0.3))
    assert seconds_added(calm, calm) == (0, 0)


def test_arms_with_different_losses_are_reported() -> None:
    check_same_losses([2.3, 2.1], [2.3, 2.1001])
    with pytest.raises(ValueError, match=r"step 2: loss 2\.1 in one arm, 2\.2 in another"):
        check_same_losses([2.3, 2.1], [2.3, 2.2])
