"""Judging costs little, and in proportion to the number of resources."""

from __future__ import annotations

import time

from policies.judgement import Court
from policies.pack import POLICIES
from tests.policies.corpus import load, resource_of

RESOURCES = [resource_of(case.clean) for case in load()]


def seconds(num_resources: int) -> float:
    """CPU time of judging so many resources: the corpus, over and over."""
    court = Court(POLICIES)
    begin = time.process_time()
    for index in range(num_resources):
        list(court.judge(RESOURCES[index % len(RESOURCES)]))
    return time.process_time() - begin


def test_a_resource_takes_less_than_a_millisecond() -> None:
    assert min(seconds(1000) for _ in range(3)) < 1.0


def test_the_time_grows_with_the_number_and_not_faster() -> None:
    few = min(seconds(500) for _ in range(3))
    many = min(seconds(4000) for _ in range(3))
    assert many < 8 * few * 1.5
