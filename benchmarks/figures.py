"""`Figure`: a benchmark's result with its peer and target; also runs arms alternately, stores figures, and
writes their tables into the docs.
"""

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
DOCS = Path(__file__).parents[1] / "docs"
SUMMARY, METHODS = DOCS / "benchmarks.md", DOCS / "dev/benchmark-methods.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
"""Markers on both pages: `python -m benchmarks.figures` writes what is between them."""
BUSY = 4.0
"""Load average of the two cores above which the summary notes other work beside a benchmark."""
_ROWS = (
    (
        "throughput",
        "time per sample",
        "Training time per sample, two ranks",
        ("torchrun and DDP, default", "torchrun and DDP, tuned as ours", "Accelerate", "Lightning"),
    ),
    (
        "throughput",
        "deterministic algorithms, time",
        "The same of tuned DDP, deterministic algorithms",
        ("",),
    ),
    ("checkpoints", "step time added", "Step time added by a checkpoint of 50 MB", ("",)),
    ("checkpoints", "time for which the training", "Training blocked by that checkpoint", ("",)),
    (
        "restart",
        "worker killed",
        "Killed worker → next step, 515 MiB of state",
        ("torchrun, dcp.load", "NVRx"),
    ),
    ("restart", "worker killed", "Killed worker → next step, small state", ("torchrun --max-restarts",)),
    (
        "lost",
        "bytes of checkpoints read again after a loss, 4",
        "Bytes read after a loss, four ranks",
        ("torch.load", "dcp.load"),
    ),
    (
        "lost",
        "steps repeated after a loss, steps of 0.2 s",
        "Steps repeated after a loss, idle CPU",
        ("torch.save", "dcp"),
    ),
    (
        "lost",
        "steps repeated after a loss, steps that take",
        "Steps repeated after a loss, busy CPU",
        ("torch.save", "dcp"),
    ),
    (
        "lost",
        "time that these saves add to a step, steps of 0.2 s",
        "Step time added by these saves, idle CPU; ours save 10 times as often",
        ("dcp",),
    ),
    ("resharding", "peak memory of a load, FSDP, 2 → 4", "Peak memory of a load, FSDP, 2 → 4 ranks", ("",)),
    ("resharding", "seconds of a load, FSDP, 2 → 4", "Time of that load, FSDP, 2 → 4 ranks", ("",)),
    ("resharding", "seconds of a load, FSDP, 4 → 2", "Time of a load, FSDP, 4 → 2 ranks", ("",)),
    ("resharding", "seconds of a load, DDP, 2 → 2", "Time of a load, DDP, 2 → 2 ranks", ("",)),
    ("resharding", "seconds of a load, DDP, 2 → 4", "Time of a load, DDP, 2 → 4 ranks", ("",)),
    ("startup", "`up` → first optimizer step", "`trainyard up` → first training step", ("helm",)),
    ("again", "second `up`", "Second `trainyard up`, no change", ("",)),
    ("recovery", "notice given", "Preemption notice → next step", ("",)),
    ("recovery", "node killed", "Node killed without notice → next step", ("",)),
    ("folder", "command → first step", "`trainyard run` of 5,000 files → first step", ("",)),
    ("allreduce", "all-reduce", "All-reduce of 32 MiB under the team's NetworkPolicy", ("",)),
    ("admission", "admission of a pod", "Pod admission, added by all policies", ("",)),
    ("idle", "idle cluster, CPU", "Idle cluster, CPU", ("",)),
    ("idle", "idle cluster, memory", "Idle cluster, memory", ("",)),
    ("preview", "preview of the local stack", "Preview of the local stack", ("",)),
    ("package", "preview of the local stack", "Preview of the local stack, through the package", ("",)),
    ("pools", "preview of 200 pools", "Preview of 200 pools", ("",)),
    ("policies", "preview of", "Preview of an AWS stack of 2,000 resources under all policies", ("",)),
    ("policies", "CPU of a preview", "The same, CPU time", ("no pack",)),
    ("buckets", "preview of", "Preview of 2,000 S3 buckets and locks under all policies", ("",)),
    ("buckets", "added per resource", "The same, added per resource", ("",)),
    ("buckets", "CPU of a preview", "The same, CPU time", ("no pack", "policy SDK")),
)
"""Benchmark, start of the claim, text, and the start of each peer's name; each peer has its own row."""
HEADLINES = tuple((name, claim, peer, text) for name, claim, text, peers in _ROWS for peer in peers)
"""The summary's rows: benchmark, start of the claim, start of the peer's name, text. Every other figure that
misses its target follows them with its claim, so that no miss is omitted."""


@dataclass(frozen=True)
class Repeats:
    """The repeated measurements of one arm."""

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
        """The number that is compared with the target."""
        return self.ours.median / self.peer.median if self.peer else self.ours.median

    @property
    def holds(self) -> bool:
        return self.value <= self.at_most


def alternating(
    ours: Callable[[], float], peer: Callable[[], float], rounds: int = 1
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Measure two arms in the order A B B A, so that a drift of the host affects both alike."""
    taken = in_both_orders({"ours": ours, "peer": peer}, rounds)
    return taken["ours"], taken["peer"]


def in_both_orders(arms: Mapping[str, Callable[[], float]], rounds: int = 1) -> dict[str, tuple[float, ...]]:
    """Measure any number of arms in the order A B C C B A."""
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
    """Store figures, with the machine that they were taken on; returns the file."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()[0]}
    path.write_text(
        json.dumps({"machine": machine, "figures": [asdict(figure) for figure in figures]}, indent=1) + "\n"
    )
    return path


def load(path: Path) -> list[Figure]:
    """Read the figures that `save` wrote; of any other file, none."""
    return [
        Figure(
            each["claim"], _samples(each["ours"]), each["at_most"], each["peer"] and _samples(each["peer"])
        )
        for each in json.loads(path.read_text()).get("figures", [])
    ]


def write_pages(results: Path = RESULTS) -> dict[Path, str]:
    """Return both pages with new tables from the stored figures.

    The summary has a row per headline and per missed target, the methods page every figure with its spread.
    """
    loads = {
        path.stem: json.loads(path.read_text()).get("machine", {}) for path in sorted(results.glob("*.json"))
    }
    taken = {name: load(results / f"{name}.json") for name in loads}
    tables = {SUMMARY: _summary(taken, loads), METHODS: _every_figure(taken, loads)}
    return {page: _with_table(page.read_text(), table) for page, table in tables.items()}


def update_pages() -> None:
    """Write both pages with new tables."""
    for page, text in write_pages().items():
        page.write_text(text)


def _with_table(text: str, table: str) -> str:
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def _summary(taken: Mapping[str, Sequence[Figure]], loads: Mapping[str, Mapping[str, Any]]) -> str:
    every = [figure for figures in taken.values() for figure in figures]
    shown = [
        (text, figure)
        for name, claim, peer, text in HEADLINES
        for figure in taken.get(name, ())
        if figure.claim.startswith(claim) and (figure.peer.name if figure.peer else "").startswith(peer)
    ]
    shown += [
        (figure.claim, figure)
        for figure in every
        if not figure.holds and not any(figure is known for _, known in shown)
    ]
    missed = sum(not figure.holds for figure in every)
    busy = ", ".join(
        f"`{name}` ({loads[name]['load']:.0f})" for name in taken if loads[name].get("load", 0) > BUSY
    )
    beside = f" Other work ran on the machine beside {busy} (load average in brackets)." if busy else ""
    return "\n".join(
        (
            f"{len(every)} figures were taken; {len(every) - missed} hold and {missed} miss their target."
            f" All misses are below.{beside}",
            "",
            "| claim | ours | peer | ratio | target | |",
            "|---|---|---|---|---|---|",
            *(_short_row(text, figure) for text, figure in shown),
        )
    )


def _short_row(text: str, figure: Figure) -> str:
    peer = f"{figure.peer.name}: {_number(figure.peer)}" if figure.peer else "–"
    ratio = f"{figure.value:.3f}" if figure.peer else "–"
    target = f"≤ {figure.at_most:.3g}" + ("" if figure.peer else f" {figure.ours.unit}")
    mark = "held" if figure.holds else "**missed**"
    return f"| {text} | {_number(figure.ours)} | {peer} | {ratio} | {target} | {mark} |"


def _number(samples: Repeats) -> str:
    value = samples.median
    return f"{value:,.0f} {samples.unit}" if abs(value) >= 1000 else f"{value:.3g} {samples.unit}"


def _every_figure(taken: Mapping[str, Sequence[Figure]], loads: Mapping[str, Mapping[str, Any]]) -> str:
    head = "| benchmark | claim | ours | peer | figure | target | load |\n|---|---|---|---|---|---|---|"
    rows = [row for name, figures in taken.items() for row in _rows(name, figures, loads[name])]
    return "\n".join((head, *rows))


def _rows(name: str, figures: Sequence[Figure], machine: Mapping[str, Any]) -> list[str]:
    return [
        f"| `{name}` | {figure.claim} | {_shown(figure.ours)} |"
        f" {f'{figure.peer.name}: {_shown(figure.peer)}' if figure.peer else '–'} | {_result(figure)} |"
        f" {_target(figure)} | {machine['load']:.1f} |"
        for figure in figures
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


def _samples(stored: Mapping[str, Any]) -> Repeats:
    return Repeats(stored["name"], stored["unit"], tuple(stored["values"]))


if __name__ == "__main__":
    update_pages()
