"""What a loss costs: bytes of checkpoints read again, and steps computed again, against bare torchrun.

The peer is the loop of PyTorch's tutorial with `torch.save` by rank 0 every 20 steps, which all ranks load.

**Bytes.** All processes are killed after a save and started again. What the ranks read of checkpoints is
counted by the kernel, in all of them together, in both arms alike.

**Steps.** With the same interval both arms would repeat the same. What saves may cost is fixed instead: ours
saves as often as takes no more of the training's time than the peer's saves do. All arms run without saves
and with them, the peers every 20 steps and ours more often; from what they take follows at which interval
ours costs no more than each peer. Then all run again in the opposite order, ours at these intervals. At every
moment it is known what a loss would cost: the steps done so far without those of the newest checkpoint that
could be loaded. Its mean over time is the figure, and it counts only if what the saves took in these very
runs, which is a figure too, was no more than the peer's. Each run ends with all processes killed: what is on
the disk then must match that account.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Repeats
from benchmarks.two_ranks import Bare, Dcp, Ours, check_same_losses, wait_for

EVERY = 20
"""Steps between two saves of the peer."""
TRIED = 5
"""Steps between two of our saves while their cost is measured: many saves, so that the cost is visible."""
NEVER = 1_000_000
WARM = 20
"""Steps at the start that are not counted; their losses are compared."""
COUNTED = 60
"""Steps that are counted: three times the peer's save interval."""
PACES = {0.2: "steps of 0.2 s that wait for a device", 0.0: "steps that take both cores"}
"""Minimum seconds of a step → its name. A step that waits for a GPU leaves the CPU time to write; one that
computes on the CPU leaves none.
"""
SETTINGS: Mapping[str, Any] = {
    "steps": NEVER,
    "seed": 7,
    "model": {"name": "mlp", "hidden": 65536, "dropout": 0},
    "data": {"batch_size_per_rank": 8},
    "optim": {"lr": 0.0001},
    "evaluate_every": NEVER,
}
"""Settings of the training: 4.9 million weights, with their momentum 39 MB."""
Arm = type[Ours | Bare]
PEERS: Mapping[str, Arm] = {"torch.save": Bare, "dcp.async_save": Dcp}
"""Peers under torchrun, by name. NVRx's launcher starts the same program, which saves and loads as much."""


@dataclass(frozen=True)
class LossRun:
    """The events of a run, from its first counted step on; times in Unix seconds."""

    steps: Mapping[int, float]
    """Step → time at which it was done."""
    saves: Mapping[int, float]
    """Step of a checkpoint → time from which it could be loaded."""

    @property
    def step_seconds(self) -> float:
        """Of one step, with its part of all saves."""
        begin, end = min(self.steps), max(self.steps)
        return (self.steps[end] - self.steps[begin]) / (end - begin)

    @property
    def steps_under_way(self) -> int:
        """Steps that were done before a checkpoint could be loaded, at worst."""
        return max(
            sum(self.steps[step] < done <= time for done in self.steps.values())
            for step, time in self.saves.items()
        )

    def repeated(self) -> float:
        """Steps that a loss would cost, on average over all moments from the first checkpoint on."""
        events = sorted(
            [(time, step, 0) for step, time in self.steps.items()]
            + [(time, 0, step) for step, time in self.saves.items()]
        )
        done = saved = 0
        weighted = seconds = before = 0.0
        for time, step, durable in events:
            if saved:
                weighted += (done - saved) * (time - before)
                seconds += time - before
            done, saved, before = max(done, step), max(saved, durable), time
        return weighted / seconds


SavesAndNone = tuple[Sequence[LossRun], Sequence[LossRun]]
"""Runs of an arm with saves, and as many runs without saves."""


@dataclass
class PacedRuns:
    """Runs with one least time of a step, which must all have the same losses."""

    pace: float
    _losses: list[float] = field(default_factory=list)
    """Losses of the first steps of the first run."""

    def take(self, arm: Arm, every: int) -> LossRun:
        """One run, with a save every so many steps."""
        run, losses = _run(arm, self.pace, every)
        self._losses = self._losses or losses
        check_same_losses(losses, self._losses)
        return run


def seconds_added(saving: Sequence[LossRun], calm: Sequence[LossRun]) -> tuple[float, ...]:
    """What saves add to a step, in each pair of runs with saves and without."""
    pairs = zip(saving, calm, strict=True)
    return tuple(one.step_seconds - other.step_seconds for one, other in pairs)


def measure() -> list[Figure]:
    """Take all figures; the losses of both arms are compared in all runs."""
    return [
        *(each for ranks in (2, 4) for each in _read_again(ranks)),
        *(each for pace in PACES for each in _repeated(pace)),
    ]


def _read_again(ranks: int) -> list[Figure]:
    ours = Repeats("trainyard", "MB", (_megabytes(Ours, ranks),))
    claim = f"bytes of checkpoints read again after a loss, {ranks} ranks"
    found = {name.replace("async_", "").replace("save", "load"): arm for name, arm in PEERS.items()}
    return [
        Figure(claim, ours, at_most=0.5, peer=Repeats(name, "MB", (_megabytes(arm, ranks),)))
        for name, arm in found.items()
    ]


def _megabytes(arm: Arm, ranks: int) -> float:
    """Read by all ranks together when they restart from the second checkpoint.

    From the first, ours would read it twice: with none to fall back to it is verified before it is loaded.
    """
    with tempfile.TemporaryDirectory() as folder:
        training = arm(Path(folder), _settings(EVERY, 0), ranks)
        try:
            training.start()
            training.reach(2 * EVERY)
            wait_for(lambda: len(training.saves()) > 1)
            training.kill()
            training.start()
            training.reach(0, attempt=2)
            return training.bytes_read() / 1e6
        finally:
            training.kill()


def _repeated(pace: float) -> list[Figure]:
    """Each arm twice, in both orders; between them our interval of saves is computed."""
    runs = PacedRuns(pace)
    calm = {arm: [runs.take(arm, NEVER)] for arm in (Ours, *PEERS.values())}
    tried = runs.take(Ours, TRIED)
    saving = {arm: [runs.take(arm, EVERY)] for arm in PEERS.values()}
    own = seconds_added([tried], calm[Ours])[0]
    intervals = {
        arm: interval(own, seconds_added(found, calm[arm])[0], tried.steps_under_way)
        for arm, found in saving.items()
    }
    for arm in reversed(saving):
        saving[arm].append(runs.take(arm, EVERY))
    ours = {every: [runs.take(Ours, every) for _ in range(2)] for every in sorted({*intervals.values()})}
    for arm in reversed(calm):
        calm[arm].append(runs.take(arm, NEVER))
    return [
        figure
        for name, arm in PEERS.items()
        for figure in _figures(
            f"{PACES[pace]}, saves every {intervals[arm]} against {EVERY}",
            name,
            ours=(ours[intervals[arm]], calm[Ours]),
            peer=(saving[arm], calm[arm]),
        )
    ]


def _figures(where: str, name: str, ours: SavesAndNone, peer: SavesAndNone) -> list[Figure]:
    """What a loss costs, and what the saves took that it needs."""
    repeated = [tuple(run.repeated() for run in saving) for saving, _ in (ours, peer)]
    added = [tuple(1000 * each for each in seconds_added(*both)) for both in (ours, peer)]
    return [
        Figure(claim, Repeats("trainyard", unit, mine), at_most, peer=Repeats(name, unit, theirs))
        for claim, unit, at_most, (mine, theirs) in (
            (f"steps repeated after a loss, {where}", "steps", 0.5, repeated),
            (f"time that these saves add to a step, {where}", "ms", 1.0, added),
        )
    ]


def interval(ours: float, peer: float, under_way: int) -> int:
    """Steps between two of our saves that take no more time than the peer's, every `EVERY` steps.

    Args:
        ours: seconds that saves every `TRIED` steps add to one of ours.
        peer: seconds that saves every `EVERY` steps add to one of the peer.
        under_way: steps until a save of ours is durable; the next one would wait for it.

    Raises:
        ValueError: the peer's saves took no time that could be seen.
    """
    if peer <= 0:
        raise ValueError(f"saves of the peer added {peer:.4f} s to a step: measure on a quiet machine")
    return max(1, math.ceil(TRIED * ours / peer), under_way)


def _run(arm: Arm, pace: float, every: int) -> tuple[LossRun, list[float]]:
    """Train, kill all, and check what is on the disk; returns the losses of the first steps, too."""
    with tempfile.TemporaryDirectory() as folder:
        training = arm(Path(folder), _settings(every, pace))
        try:
            training.start()
            training.reach(WARM + COUNTED)
        finally:
            training.kill()
        steps, saves = training.steps(), training.saves()
        claimed = max((line["step"] for line in saves), default=0)
        if training.saved_step() < claimed:
            raise ValueError(f"step {claimed} was said to be saved, on the disk is {training.saved_step()}")
    return (
        LossRun(
            {line["step"]: line["time"] for line in steps if line["step"] >= WARM},
            {line["step"]: line["time"] for line in saves if line["step"] >= WARM},
        ),
        [line["loss"] for line in steps[:WARM]],
    )


def _settings(every: int, pace: float) -> dict[str, Any]:
    return {**SETTINGS, "checkpoint": {"every_steps": every}, "pace_seconds": pace}
