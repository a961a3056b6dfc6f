"""Benchmark: checkpoint bytes read and steps repeated after all processes are killed, against `torch.save`
(rank 0 saves, all ranks load) and `dcp.async_save` under torchrun.

**Bytes.** All processes are killed after a save and started again. The kernel counts the checkpoint bytes
that all ranks read together.

**Steps.** A failure repeats the steps since the newest checkpoint that could be loaded; the figure is their
mean number over the time of a run. With equal save intervals the arms would repeat equally many steps, so the
cost of the saves is fixed instead: each peer saves every 20 steps, and ours as often as takes no more of the
training's time than the peer's saves. This interval follows from runs of all arms with saves and without;
then all arms run again in the opposite order, ours at the computed intervals. The time that saves add to a
step is a second figure. After each run all processes are killed, and the disk must have the newest checkpoint
that was recorded as saved.
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

PEER_INTERVAL = 20
"""Steps between two saves of the peer."""
TRIAL_INTERVAL = 5
"""Steps between two of our saves while their cost is measured: many saves, so that the cost is visible."""
NEVER = 1_000_000
WARM = 20
"""Steps at the start that are not counted; their losses are compared."""
COUNTED = 60
"""Steps that are counted: three times the peer's save interval."""
PACES = {0.2: "steps of 0.2 s that wait for a device", 0.0: "steps that take both cores"}
"""Minimum seconds of a step → its name. A step that waits for a GPU leaves the CPU time to write; one that
computes on the CPU leaves none."""
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
        """Mean seconds of a step, saves included."""
        begin, end = min(self.steps), max(self.steps)
        return (self.steps[end] - self.steps[begin]) / (end - begin)

    @property
    def steps_under_way(self) -> int:
        """Maximum number of steps from the start of a save until its checkpoint could be loaded."""
        return max(
            sum(self.steps[step] < done <= time for done in self.steps.values())
            for step, time in self.saves.items()
        )

    def repeated(self) -> float:
        """Mean number of steps that a failure would repeat, over the time from the first checkpoint on."""
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
    """Runs with the same minimum time of a step, which must all have the same losses."""

    pace: float
    _losses: list[float] = field(default_factory=list)
    """ScheduledPreemptions of the first steps of the first run."""

    def take(self, arm: Arm, every: int) -> LossRun:
        """Run an arm once, with a save every `every` steps."""
        run, losses = _run(arm, self.pace, every)
        self._losses = self._losses or losses
        check_same_losses(losses, self._losses)
        return run


def seconds_added(saving: Sequence[LossRun], calm: Sequence[LossRun]) -> tuple[float, ...]:
    """Seconds that saves add to a step, in each pair of runs with saves and without."""
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
    """Megabytes that all ranks together read when they restart from the second checkpoint.

    From the first, ours would read it twice: with none to fall back to it is verified before it is loaded.
    """
    with tempfile.TemporaryDirectory() as folder:
        training = arm(Path(folder), _settings(PEER_INTERVAL, 0), ranks)
        try:
            training.start()
            training.reach(2 * PEER_INTERVAL)
            wait_for(lambda: len(training.saves()) > 1)
            training.kill()
            training.start()
            training.reach(0, attempt=2)
            return training.bytes_read() / 1e6
        finally:
            training.kill()


def _repeated(pace: float) -> list[Figure]:
    """Run each arm twice, in both orders; compute our save intervals between the two."""
    runs = PacedRuns(pace)
    calm = {arm: [runs.take(arm, NEVER)] for arm in (Ours, *PEERS.values())}
    tried = runs.take(Ours, TRIAL_INTERVAL)
    saving = {arm: [runs.take(arm, PEER_INTERVAL)] for arm in PEERS.values()}
    own = seconds_added([tried], calm[Ours])[0]
    intervals = {
        arm: interval(own, seconds_added(found, calm[arm])[0], tried.steps_under_way)
        for arm, found in saving.items()
    }
    for arm in reversed(saving):
        saving[arm].append(runs.take(arm, PEER_INTERVAL))
    ours = {every: [runs.take(Ours, every) for _ in range(2)] for every in sorted({*intervals.values()})}
    for arm in reversed(calm):
        calm[arm].append(runs.take(arm, NEVER))
    return [
        figure
        for name, arm in PEERS.items()
        for figure in _figures(
            f"{PACES[pace]}, saves every {intervals[arm]} against {PEER_INTERVAL}",
            name,
            ours=(ours[intervals[arm]], calm[Ours]),
            peer=(saving[arm], calm[arm]),
        )
    ]


def _figures(where: str, name: str, ours: SavesAndNone, peer: SavesAndNone) -> list[Figure]:
    """Figures of repeated steps, and of the time that the saves add to a step."""
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
    """Steps between two of our saves that take no more time than the peer's, every
    `PEER_INTERVAL` steps.

    Args:
        ours: seconds that saves every `TRIAL_INTERVAL` steps add to one of ours.
        peer: seconds that saves every `PEER_INTERVAL` steps add to one of the peer.
        under_way: steps until a save of ours is durable; the next one would wait for it.

    Raises:
        ValueError: the peer's saves took no time that could be seen.
    """
    if peer <= 0:
        raise ValueError(f"saves of the peer added {peer:.4f} s to a step: measure on a quiet machine")
    return max(1, math.ceil(TRIAL_INTERVAL * ours / peer), under_way)


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
