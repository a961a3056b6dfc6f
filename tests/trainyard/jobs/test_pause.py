"""`trainyard pause`: its report of the pods that it ended; a real pause is in tests/e2e/test_member.py."""

from collections.abc import Mapping

import pytest

from trainyard.jobs.pause import outcome


@pytest.mark.parametrize(
    ("codes", "text"),
    [
        ({}, "no pod ran"),
        ({"a": 75, "b": 75}, "2 pods exited with their work saved"),
        ({"a": 75, "b": 143}, "not all pods saved their work (b exited with 143)"),
        ({"a": None}, "a ended unobserved"),
    ],
)
def test_exit_codes_of_pods_show_a_committed_checkpoint(codes: Mapping[str, int | None], text: str) -> None:
    assert text in outcome(codes)
