"""Merges the events of a job from several sources into one timeline, and renders it as a table."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from rich.text import Text

from engine.tables import PlainTable

STYLES = {"cloud": "red", "queue": "cyan", "job": "green"}
"""The actors of a timeline, each with its colour."""


@dataclass(frozen=True, order=True)
class TimelineEvent:
    """One line of the timeline."""

    time: float
    """Unix seconds."""
    actor: str
    """`cloud` (nodes are added and removed), `queue` (admission), `job` (the training code)."""
    text: str


def merged(*sources: Iterable[TimelineEvent]) -> list[TimelineEvent]:
    """Put the events of several sources in the order of time, each once."""
    return sorted({event for source in sources for event in source})


def table(events: Sequence[TimelineEvent]) -> PlainTable:
    """Render the events with the clock and the seconds since the first."""
    grid = PlainTable("clock", "after", "who", "what", right=["after"])
    for event in events:
        style = STYLES[event.actor]
        clock = datetime.fromtimestamp(event.time).strftime("%H:%M:%S")
        after = f"{event.time - events[0].time:.1f} s"
        grid.add_row(f"[dim]{clock}[/]", after, Text(event.actor, style), Text(event.text))
    return grid


def brief(time_span: timedelta) -> str:
    """Write a span of time in its two largest units: `2 h 5 min`."""
    seconds = max(0, int(time_span.total_seconds()))
    units = [
        ("d", seconds // 86400),
        ("h", seconds // 3600 % 24),
        ("min", seconds // 60 % 60),
        ("s", seconds % 60),
    ]
    first = next((index for index, (_, number) in enumerate(units) if number), 3)
    return " ".join(f"{number} {unit}" for unit, number in units[first : first + 2] if number) or "0 s"
