"""A figure: what we take, what the peer takes in the same run, and what we aim at."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from rich.console import Console
from rich.table import Table

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
"""What is between them on the page is written by `python -m benchmarks.figures`."""


@dataclass(frozen=True)
class Repeats:
    """Repeats of one arm."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> str:
        """The quartiles, or the range where there are too few repeats for them."""
        if len(self.values) < 4:
            return f"{min(self.values):.1f}…{max(self.values):.1f}"
        low, _, high = quantiles(self.values, n=4)
        return f"{low:.1f}…{high:.1f}"


@dataclass(frozen=True)
class Figure:
    """One claim of the project, measured."""

    claim: str
    ours: Repeats
    at_most: float
    """The target: in the samples' unit, or as a ratio where there is a peer."""
    peer: Repeats | None = None

    @property
    def value(self) -> float:
        """What the target speaks of."""
        return self.ours.median / self.peer.median if self.peer else self.ours.median

    @property
    def holds(self) -> bool:
        return self.value <= self.at_most


def alternating(
    ours: Callable[[], float], peer: Callable[[], float], rounds: int = 1
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure two arms in the order A B B A, so that a drift of the machine touches both alike."""
    taken = there_and_back({"ours": ours, "peer": peer}, rounds)
    return taken["ours"], taken["peer"]


def there_and_back(arms: Mapping[str, Callable[[], float]], rounds: int = 1) -> dict[str, tuple[float, ...]]:
    """The same for any number of arms: A B C C B A."""
    taken: dict[str, tuple[float, ...]] = dict.fromkeys(arms, ())
    for name in (*arms, *reversed(list(arms))) * rounds:
        taken[name] += (arms[name](),)
    return taken


def show(console: Console, figures: Sequence[Figure]) -> None:
    """Print one row per figure."""
    table = Table("claim", "ours", "peer", "figure", "target", "", title="Figures", title_justify="left")
    for figure in figures:
        ours, peer = figure.ours, figure.peer
        against = f"{peer.name}: {peer.median:.1f} {peer.unit} ({peer.spread})" if peer else "–"
        unit = "×" if peer else f" {ours.unit}"
        mark = "[green]holds[/]" if figure.holds else "[red]missed[/]"
        own = f"{ours.median:.1f} {ours.unit} ({ours.spread})"
        table.add_row(
            figure.claim, own, against, f"{figure.value:.2f}{unit}", f"≤ {figure.at_most:g}{unit}", mark
        )
    console.print(table)


def save(name: str, figures: Sequence[Figure]) -> Path:
    """Keep the samples with what they were taken on."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0]}
    path.write_text(
        json.dumps({"machine": machine, "figures": [asdict(figure) for figure in figures]}, indent=1) + "\n"
    )
    return path


def load(path: Path) -> list[Figure]:
    """The figures that `save` kept; none of a file that keeps something else."""
    return [
        Figure(
            each["claim"], _samples(each["ours"]), each["at_most"], each["peer"] and _samples(each["peer"])
        )
        for each in json.loads(path.read_text()).get("figures", [])
    ]


def write_page(page: Path = PAGE, results: Path = RESULTS) -> str:
    """The page with its table of figures written anew from what was kept; whoever measures writes it back."""
    before, _, rest = page.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    rows = [row for path in sorted(results.glob("*.json")) for row in _rows(path)]
    head = "| benchmark | claim | ours | peer | figure | target | load |\n|---|---|---|---|---|---|---|"
    return f"{before}{BEGIN}\n{head}\n{''.join(f'{row}{chr(10)}' for row in rows)}{END}{after}"


def _rows(path: Path) -> list[str]:
    machine = json.loads(path.read_text()).get("machine", {})
    return [
        f"| `{path.stem}` | {figure.claim} | {_shown(figure.ours)} |"
        f" {f'{figure.peer.name}: {_shown(figure.peer)}' if figure.peer else '–'} | {_result(figure)} |"
        f" {_target(figure)} | {machine['load']:.1f} |"
        for figure in load(path)
    ]


def _shown(samples: Repeats) -> str:
    return f"{samples.median:.4g} {samples.unit} ({samples.spread}; {len(samples.values)})"


def _result(figure: Figure) -> str:
    text = f"{figure.value:.3g} ×" if figure.peer else f"{figure.value:.3g} {figure.ours.unit}"
    return text if figure.holds else f"**{text}, missed**"


def _target(figure: Figure) -> str:
    if math.isinf(figure.at_most):
        return "–"
    return f"≤ {figure.at_most:.4g} {'×' if figure.peer else figure.ours.unit}"


def _samples(kept: Mapping[str, Any]) -> Repeats:
    return Repeats(kept["name"], kept["unit"], tuple(kept["values"]))


if __name__ == "__main__":
    PAGE.write_text(write_page())
