"""Kubernetes quantities: written in the API server's form, and read in any."""

import json

import pytest

from infra.common.quantities import read, whole_numbers, written


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (8, "8"), (1024, "1024"), (1500, "1500"), (2000, "2k"), (100_000, "100k"), (1_000_000, "1M")],
)
def test_a_number_is_written_in_the_largest_unit_that_divides_it(number: int, text: str) -> None:
    assert written(number) == text
    assert read(text) == number


def test_other_forms_are_read_too() -> None:
    assert (read("2000"), read(16)) == (2000, 16)


def test_a_quantity_that_is_not_a_whole_number_is_refused() -> None:
    with pytest.raises(ValueError, match="500m"):
        read("500m")


def test_whole_floats_are_numbers_again() -> None:
    assert json.dumps(whole_numbers({"a": [1.0, 1.5], "b": True})) == '{"a": [1, 1.5], "b": true}'
