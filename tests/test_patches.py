"""Patches by path (`tests/patches.py`): applying one, and finding the shortest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.patches import changed, difference

KEYS = st.text(alphabet='ab.[]"\\0', max_size=3)
SCALARS = st.none() | st.booleans() | st.integers(0, 3) | st.text(max_size=3)
DATA = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4)
)


@given(st.dictionaries(KEYS, DATA, max_size=4), st.dictionaries(KEYS, DATA, max_size=4))
def test_a_difference_turns_the_old_document_into_the_new_one(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    patch = difference(old, new)
    assert repr_of(patch[""] if "" in patch else changed(old, patch)) == repr_of(new)
    assert difference(new, new) == {}


def repr_of(data: Any) -> Any:
    """Distinguish 1 from True, and ignore the order of keys."""
    if isinstance(data, dict):
        return {key: repr_of(value) for key, value in data.items()}
    return [repr_of(each) for each in data] if isinstance(data, list) else repr(data)


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ({"a.b[0]": 2}, {"a": {"b": [2, 3]}}),
        ({"a.b[0]": None}, {"a": {"b": [3]}}),
        ({"a.b[2]": 4}, {"a": {"b": [1, 3, 4]}}),
        ({'a["x/y.z"]': 4}, {"a": {"b": [1, 3], "x/y.z": 4}}),
        ({"c.d": 5}, {"a": {"b": [1, 3]}, "c": {"d": 5}}),
    ],
)
def test_a_patch_changes_what_its_path_names(patch: dict[str, Any], expected: dict[str, Any]) -> None:
    assert changed({"a": {"b": [1, 3]}}, patch) == expected
