"""The estimate of when a queued job starts: both ends of the range, and when an end is unknown."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.tables import table
from trainyard.jobs.estimate import Holder, Lengths, PoolCapacity, earliest, latest

USUAL = Lengths(number=20, shortest=100.0, longest=1000.0)
STARTS: Mapping[str, Sequence[Any]] = table(__file__, "estimates")


@pytest.mark.parametrize("case", STARTS)
def test_the_start_is_bounded_at_both_ends_or_unknown(case: str) -> None:
    capacity, nodes, ahead, known, first, last = STARTS[case]
    holders = tuple(Holder(*each) for each in capacity.pop("holders", ()))
    room, past = PoolCapacity(**capacity, holders=holders), USUAL if known else Lengths()
    assert (earliest(room, nodes, past), latest(room, nodes, ahead, past)) == (first, last)


def test_few_jobs_give_no_estimate_of_the_next() -> None:
    assert Lengths.of([10, 20]) == Lengths(2)
    many = Lengths.of([float(each) for each in range(1, 101)])
    assert (round(many.shortest), round(many.longest)) == (11, 90)
