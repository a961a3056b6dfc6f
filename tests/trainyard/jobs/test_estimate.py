"""The estimate of when a queued job starts: both ends of the range, and when an end is unknown."""

import math

from trainyard.jobs.estimate import Holder, Lengths, PoolCapacity, earliest, latest

UNKNOWN = Lengths()
USUAL = Lengths(number=20, shortest=100.0, longest=1000.0)


def test_a_job_that_fits_starts_now() -> None:
    room = PoolCapacity(free=4)
    assert earliest(room, 4, UNKNOWN) == latest(room, 4, [], UNKNOWN) == 0


def test_a_job_larger_than_the_flavor_never_starts() -> None:
    assert math.isinf(earliest(PoolCapacity(free=2, holders=(Holder(2, 0),)), 5, UNKNOWN))


def test_time_limits_bound_the_start() -> None:
    room = PoolCapacity(free=0, holders=(Holder(2, 10, limit=100), Holder(2, 10, limit=50)))
    assert latest(room, 2, [], UNKNOWN) == 40
    assert latest(room, 4, [], UNKNOWN) == 90


def test_without_time_limits_or_past_jobs_the_start_is_unknown() -> None:
    room = PoolCapacity(free=0, holders=(Holder(2, 10),))
    assert earliest(room, 2, UNKNOWN) == 0, "it may end at any moment"
    assert math.isinf(latest(room, 2, [], UNKNOWN))


def test_past_durations_bound_both_ends() -> None:
    room = PoolCapacity(free=0, holders=(Holder(2, 40),))
    assert earliest(room, 2, USUAL) == 60
    assert latest(room, 2, [], USUAL) == 960


def test_a_job_that_outlasts_all_others_can_take_any_time() -> None:
    assert math.isinf(latest(PoolCapacity(free=0, holders=(Holder(2, 1001),)), 2, [], USUAL))
    assert latest(PoolCapacity(free=0, holders=(Holder(2, 1001, limit=2000),)), 2, [], USUAL) == 999


def test_jobs_ahead_in_the_queue_count_in_the_estimate() -> None:
    room = PoolCapacity(free=2)
    assert earliest(room, 2, USUAL) == 0, "it may be overtaken, or removed"
    assert latest(room, 2, [2, 2], USUAL) == 2000


def test_jobs_of_others_may_end_now_or_never() -> None:
    room = PoolCapacity(free=0, others=8)
    assert earliest(room, 8, USUAL) == 0
    assert math.isinf(latest(room, 8, [], USUAL))


def test_few_jobs_give_no_estimate_of_the_next() -> None:
    assert Lengths.of([10, 20]) == Lengths(2)
    many = Lengths.of([float(each) for each in range(1, 101)])
    assert (round(many.shortest), round(many.longest)) == (11, 90)
