"""Tiers: markers with the names of the `make` targets that run a test; `pyproject.toml` lists them.

A test's tier is its marker, else that of its file (`pytestmark`), else that of the nearest package whose
`__init__.py` has a `pytestmark`, else `unit`. With `-m`, files without a test of the tier are not imported,
since PyTorch or a cloud's SDK takes seconds to import. So markers are read from the text.
"""

import re
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

ROOT = Path(__file__).parent
DEFAULT = "unit"
TIERS = frozenset({DEFAULT, "clouds", "training", "cluster", "engine", "ranks"})
SOAK = "soak"
"""Additional marker of a test that takes too long for its tier."""
KNOWN = TIERS | {SOAK}
_MARKER = re.compile(r"\bpytest\.mark\.(\w+)")
_OF_ALL = re.compile(r"^pytestmark\b.*?(?=^[\w@#]|\Z)", re.MULTILINE | re.DOTALL)
"""The `pytestmark` statement, up to the next statement."""
_NAME = re.compile(r"\w+")
_OPERATORS = frozenset({"and", "or", "not"})


@cache
def markers_of(file: Path) -> frozenset[frozenset[str]]:
    """Return the sets of known markers that a test of the file can have."""
    text = file.read_text()
    of_all = _known("".join(_OF_ALL.findall(text)))
    named = _known(text)
    tiers = (of_all & TIERS or {tier_of(file.parent)}) | (named - of_all) & TIERS
    lengths = [{SOAK}] if SOAK in of_all else [set(), {SOAK}] if SOAK in named else [set()]
    return frozenset(frozenset({tier, *length}) for tier, length in product(tiers, lengths))


@cache
def tier_of(folder: Path) -> str:
    """Return the tier of a folder's files that name none."""
    package = folder / "__init__.py"
    declared = _known(package.read_text()) & TIERS if package.exists() else ()
    for tier in declared:
        return tier
    return DEFAULT if folder in (ROOT, folder.parent) else tier_of(folder.parent)


@cache
def is_wanted(markers: frozenset[str], expression: str) -> bool:
    """Whether `-m` with this expression selects a test with these markers."""
    return Expression.compile(expression).evaluate(lambda name, /, **_: name in markers)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files and folders without a test that `-m` selects."""
    expression = config.option.markexpr
    if not expression or not KNOWN.issuperset(set(_NAME.findall(expression)) - _OPERATORS):
        return None
    if collection_path.is_dir():
        files = [*collection_path.rglob("test_*.py")]
    elif collection_path.match("test_*.py"):
        files = [collection_path]
    else:
        return None
    wanted = any(is_wanted(markers, expression) for file in files for markers in markers_of(file))
    return None if wanted else True


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test the tier of its folder if neither it nor its file names one."""
    if not {marker.name for marker in item.iter_markers()} & TIERS:
        item.add_marker(tier_of(item.path.parent))
    markers = KNOWN.intersection(marker.name for marker in item.iter_markers())
    if markers not in markers_of(item.path):
        read = " or ".join(sorted("+".join(sorted(each)) for each in markers_of(item.path)))
        raise pytest.UsageError(f"{item.nodeid} has the markers {'+'.join(sorted(markers))}, its file {read}")


def _known(text: str) -> frozenset[str]:
    return KNOWN.intersection(_MARKER.findall(text))
