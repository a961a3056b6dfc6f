"""The figures on the benchmarks' pages are those in benchmarks/results."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.figures import HEADLINES, RESULTS, SUMMARY, load, write_pages
from tests.proof import BUDGETS


@pytest.fixture
def results(tmp_path: Path) -> Path:
    copy = tmp_path / "results"
    shutil.copytree(RESULTS, copy)
    return copy


def changed(before: Mapping[Path, str], after: Mapping[Path, str], page: Path) -> list[str]:
    """Return the rows of a page's table that are new."""
    old = before[page].splitlines()
    return [line for line in after[page].splitlines() if line not in old and line.startswith("|")]


def test_the_pages_have_the_stored_figures() -> None:
    for page, text in write_pages().items():
        assert page.read_text() == text, "run `python -m benchmarks.figures`"


def test_the_summary_names_every_missed_target(results: Path) -> None:
    before = write_pages(results)
    stored = json.loads((results / "pools.json").read_text())
    figure = next(each for each in stored["figures"] if each["claim"] == "preview of 50 pools")
    figure["at_most"] = 0.001
    (results / "pools.json").write_text(json.dumps(stored))
    after = write_pages(results)
    (row,) = changed(before, after, SUMMARY)
    assert row.startswith("| preview of 50 pools |")
    assert "**missed**" in row
    every = [figure for path in results.glob("*.json") for figure in load(path)]
    assert after[SUMMARY].count("| **missed** |") == sum(not figure.holds for figure in every)


def test_each_headline_is_of_a_stored_figure() -> None:
    for name, claim, peer, text in HEADLINES:
        found = [
            figure
            for figure in load(RESULTS / f"{name}.json")
            if figure.claim.startswith(claim) and (figure.peer.name if figure.peer else "").startswith(peer)
        ]
        assert len(found) == 1, text


def test_the_limit_of_all_tests_is_their_budget() -> None:
    (row,) = [line for line in SUMMARY.read_text().splitlines() if line.startswith("| `make test COLD=1`")]
    assert f"| ≤ {BUDGETS['minutes']['all']} min" in row
