"""`trainyard pause`: its report of the pods that it ended; a real pause is in tests/e2e/test_member.py."""

from collections.abc import Mapping

import pytest

from tests.tables import table
from trainyard.jobs.pause import outcome


@pytest.mark.parametrize(("codes", "text"), table(__file__))
def test_exit_codes_of_pods_show_a_committed_checkpoint(codes: Mapping[str, int | None], text: str) -> None:
    assert text in outcome(codes)
