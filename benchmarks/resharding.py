"""Benchmark: peak memory and seconds to load an FSDP or DDP checkpoint, mostly with another number of ranks
than saved it, against `torch.distributed.checkpoint.load`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Repeats, alternating

MIB = 512
"""MiB of the state that each rank has after the load."""
ROUNDS = 1
"""Rounds, each of which runs the arms in the order A B B A."""


@dataclass(frozen=True)
class LayoutChange:
    """A layout, and how many ranks save and load."""

    layout: str
    saved_by: int
    loaded_by: int

    @property
    def mib(self) -> int:
        """MiB of the whole state."""
        return MIB * (self.loaded_by if self.layout == "fsdp" else 1)

    @property
    def text(self) -> str:
        return f"{self.layout.upper()}, {self.saved_by} → {self.loaded_by} ranks, ≥ {MIB} MiB each"


CHANGES = (
    LayoutChange("fsdp", 2, 4),
    LayoutChange("fsdp", 4, 2),
    LayoutChange("ddp", 2, 2),
    LayoutChange("ddp", 2, 4),
)


@dataclass(frozen=True)
class LoadCost:
    """Measurements of one load; the maximum over all ranks."""

    peak: float
    """Peak memory during the load, in MiB above the memory in use before it."""
    own: float
    """MiB of the rank's own tensors."""
    seconds: float


def measure() -> list[Figure]:
    """Save by both arms, and load by each in separate processes, alternating."""
    return [figure for change in CHANGES for figure in _measured(change)]


def _measured(change: LayoutChange) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        for arm in ("ours", "peer"):
            _run(change.saved_by, "save", arm, change, folder)
        loads: dict[str, list[LoadCost]] = {"ours": [], "peer": []}

        def load(arm: str) -> Callable[[], float]:
            def once() -> float:
                _run(change.loaded_by, "load", arm, change, folder)
                loads[arm].append(_worst(Path(folder), change.loaded_by))
                return loads[arm][-1].seconds

            return once

        alternating(load("ours"), load("peer"), ROUNDS)
    return figures(change, loads["ours"], loads["peer"])


def figures(change: LayoutChange, ours: Sequence[LoadCost], peer: Sequence[LoadCost]) -> list[Figure]:
    """Figures of the loads of both arms."""

    def samples(name: str, unit: str, values: Sequence[float]) -> Repeats:
        return Repeats(name, unit, tuple(values))

    peak = samples("trainyard", "MiB", [each.peak for each in ours])
    own = samples("its own tensors", "MiB", [each.own for each in ours])
    theirs = samples("dcp.load", "MiB", [each.peak for each in peer])
    seconds = (
        samples("trainyard, every byte verified", "s", [each.seconds for each in ours]),
        samples("dcp.load", "s", [each.seconds for each in peer]),
    )
    return [
        Figure(f"peak memory of a load, {change.text}", peak, 1.1, peer=theirs),
        Figure(f"the same, against the rank's own tensors, {change.text}", peak, 1.3, peer=own),
        Figure(f"seconds of a load, {change.text}", seconds[0], 1.0, peer=seconds[1]),
    ]


def _run(ranks: int, action: str, arm: str, change: LayoutChange, folder: str) -> None:
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={ranks}",
        "-m",
    ]
    what = [action, arm, change.layout, folder, str(change.mib)]
    subprocess.run([*launch, "benchmarks.peers.resharding", *what], check=True)


def _worst(folder: Path, ranks: int) -> LoadCost:
    found = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(ranks)]
    peak, own, seconds = (max(each[key] for each in found) for key in ("peak", "own", "seconds"))
    return LoadCost(peak / 2**20, own / 2**20, seconds)
