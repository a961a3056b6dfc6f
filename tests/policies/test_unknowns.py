"""Reading properties with unknown values, which raises with the path."""

import pytest

from policies.unknowns import UNKNOWN, PropertyBlock, UnknownProperty
from tests.tables import table

PROPS = PropertyBlock(
    {
        "name": "a",
        "later": UNKNOWN,
        "block": {"inner": {"value": 1}, "later": UNKNOWN},
        "list": [{"value": 2}, {"value": UNKNOWN}],
        "ids": ["x", UNKNOWN],
        "items": [UNKNOWN],
        "nothing": None,
    }
)


def test_known_values_are_read_by_path() -> None:
    assert PROPS.get("block.inner.value") == 1
    assert PROPS.get("list[0].value") == 2
    assert PROPS.block("block").get("inner.value") == 1
    assert PROPS.get("nothing", "default") == "default"
    assert PROPS.get("list[7].value") is None


@pytest.mark.parametrize(("path", "named"), table(__file__)["values"])
def test_reading_an_unknown_value_raises_with_its_path(path: str, named: str) -> None:
    with pytest.raises(UnknownProperty) as raised:
        PROPS.get(path)
    assert raised.value.path == named


def test_an_unknown_value_counts_as_set() -> None:
    assert PROPS.has("later")
    assert PROPS.has("block.later")
    assert not PROPS.has("nothing")


@pytest.mark.parametrize(("path", "named"), table(__file__)["blocks"])
def test_whether_an_unknown_block_has_a_value_is_unknown(path: str, named: str) -> None:
    with pytest.raises(UnknownProperty) as raised:
        PROPS.has(path)
    assert raised.value.path == named
    assert not PROPS.has("nothing.deeper")


def test_unknown_items_are_counted_and_an_unknown_list_is_not() -> None:
    assert PROPS.count("ids") == 2
    assert PROPS.count("absent") == 0
    with pytest.raises(UnknownProperty):
        PROPS.count("later")


def test_a_block_has_its_path() -> None:
    assert PROPS.blocks("list")[0].at("value") == "list[0].value"


def test_a_label_is_read_by_its_whole_key() -> None:
    labels = PropertyBlock({"a.b/c": "x", "d.e/f": UNKNOWN}, "metadata.labels")
    assert labels.entry("a.b/c") == "x"
    with pytest.raises(UnknownProperty) as raised:
        labels.entry("d.e/f")
    assert raised.value.path == "metadata.labels[d.e/f]"
