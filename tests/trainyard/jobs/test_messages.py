"""Kueue's messages in our words: each row by a message of Kueue 0.18.4, and what has no row as it is."""

import re

import pytest

from tests.tables import table
from trainyard.jobs.messages import ROWS, in_our_words

SAID = table(__file__)


@pytest.mark.parametrize(("message", "shown"), SAID.items())
def test_a_message_of_the_queue_is_shown_in_our_words(message: str, shown: str) -> None:
    assert in_our_words(message) == shown


def test_each_row_has_a_message_and_the_table_stays_small() -> None:
    unused = [pattern for pattern, _ in ROWS if not any(re.search(pattern, message) for message in SAID)]
    assert not unused and len(ROWS) <= 25


def test_an_unknown_message_is_shown_as_it_is() -> None:
    assert in_our_words("resource claims are not ready") == "resource claims are not ready"
