"""Goodput: each second of a run is attributed to one cause, and the HTML report shows it."""

import json
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.contract import FILE, read_metrics
from trainyard_train.observability.goodput import Goodput, goodput
from trainyard_train.observability.report import write_report


def line(event: str, attempt: int, step: int, time: float, **values: Any) -> dict[str, Any]:
    return {"event": event, "attempt": attempt, "step": step, "time": time, **values}


LINES = [
    line("started", 1, 0, 105.0, startup_seconds=5.0),
    line("step", 1, 1, 106.0),
    line("straggler", 1, 1, 106.25),  # logged during a step
    line("step", 1, 2, 107.5),
    line("checkpoint", 1, 1, 107.5, reason="interval", blocked_seconds=0.5),
    line("evaluation", 1, 2, 107.75),
    line("step", 1, 3, 108.75),  # failed without a final event
    line("resumed", 2, 2, 120.0, startup_seconds=4.0),
    line("step", 2, 3, 121.0),
    line("notice", 2, 3, 121.5),
    line("checkpoint", 2, 3, 122.0, reason="notice", blocked_seconds=0.1),
    line("preempted", 2, 3, 122.0),
]


def test_each_second_is_attributed_to_what_took_it() -> None:
    assert goodput(LINES) == Goodput(
        productive=1.0 + 1.0 + 1.0,
        repeated=1.0,
        checkpoint=0.5 + 1.0,
        evaluation=0.25,
        startup=9.0,
        waiting=7.25,
    )
    assert goodput(LINES).total == pytest.approx(122.0 - 100.0)
    assert goodput(LINES).share == pytest.approx(3.0 / 22.0)


@given(st.lists(st.sampled_from(LINES), max_size=30), st.integers(0, 100))
def test_whatever_lines_there_are_they_add_up(lines: list[dict[str, Any]], start: int) -> None:
    ordered = [dict(item, time=float(start + number)) for number, item in enumerate(lines)]
    spent = goodput(ordered)
    begin = ordered[0]["time"] - ordered[0].get("startup_seconds", 0) if ordered else 0
    assert spent.total == pytest.approx(ordered[-1]["time"] - begin if ordered else 0)


def test_a_clock_that_was_set_back_costs_nothing() -> None:
    lines = [line("started", 1, 0, 100.0), line("step", 1, 1, 50.0), line("step", 1, 2, 51.0)]
    assert goodput(lines) == Goodput(productive=1.0)


def test_a_run_that_has_not_begun_lost_nothing() -> None:
    assert goodput([]).share == 1


class Page(HTMLParser):
    """Parses a page: collects its text, and fails on a tag that is not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert not any(name == "src" and not (value or "").startswith("data:") for name, value in attrs)
        if tag not in {"meta", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_report_is_one_page_that_needs_nothing_else(tmp_path: Path) -> None:
    run_dir = tmp_path / "a <b> run"
    train(configure(run_dir), NoticeAt(7))
    train(configure(run_dir))
    write_report(run_dir, run_dir / "report.html")
    page = Page()
    page.feed((run_dir / "report.html").read_text())
    assert page.open == []
    text = " ".join(page.text)
    assert "a <b> run: 1 rank, 2 attempts" in text
    assert "preempted" in text
    assert "finished" in text
    spent = goodput(read_metrics(run_dir / FILE))
    assert f"{spent.share:.1%}" in text
    assert all(name in text for name in asdict(spent))


def test_a_run_without_steps_has_no_report(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps(line("started", 1, 0, 1.0)) + "\n")
    with pytest.raises(ValueError, match="no step yet"):
        write_report(tmp_path, tmp_path / "report.html")
