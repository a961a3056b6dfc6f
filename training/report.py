"""The learning curve of a run as a picture, with what interrupted it: `python -m training.report RUN_DIR`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from training.metrics import FILE, read_metrics, surviving_steps

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOSS: Final = "#2f6f9f"
_ACCURACY: Final = "#c8691c"
_INTERRUPTED: Final = "#b3261e"
_FAINT: Final = "#5f6b76"


@dataclass(frozen=True)
class Interruption:
    """An attempt that ended early, and the one that went on."""

    step: int
    """The last step that was taken, of which nothing was lost if it equals `resumed_step`."""
    resumed_step: int
    seconds: float
    """From the last step before to the first step after."""
    noticed: bool
    """Whether a notice came first."""

    @property
    def label(self) -> str:
        """In words."""
        lost = self.step - self.resumed_step
        kind = "preempted" if self.noticed else "lost without notice"
        return f"{kind}\n{self.seconds:.0f} s, {lost} step{'' if lost == 1 else 's'} repeated"


def interruptions(lines: Sequence[dict[str, Any]]) -> list[Interruption]:
    """Those of a run, in order; attempts that died before their first step belong to the one before."""
    steps = [line for line in lines if line["event"] == "step"]
    resumed = {line["attempt"]: line["step"] for line in lines if line["event"] in {"started", "resumed"}}
    noticed = {line["attempt"] for line in lines if line["event"] == "notice"}
    return [
        Interruption(
            before["step"],
            resumed.get(after["attempt"], 0),
            after["time"] - before["time"],
            before["attempt"] in noticed,
        )
        for before, after in pairwise(steps)
        if before["attempt"] != after["attempt"]
    ]


def draw_learning_curve(run_dir: Path, picture: Path) -> None:
    """Draw loss and accuracy over the steps of a run to a PNG.

    Raises:
        ValueError: the run has no step yet.
    """
    lines = read_metrics(run_dir / FILE)
    steps = surviving_steps(lines)
    if not steps:
        raise ValueError(f"{run_dir / FILE} has no step yet")
    import matplotlib as mpl

    mpl.use("Agg")  # no display, and none of its start-up
    from matplotlib import pyplot

    figure, (loss, accuracy) = pyplot.subplots(2, 1, figsize=(9, 5.6), dpi=150, sharex=True)
    _draw_loss(loss, steps)
    _draw_accuracy(accuracy, steps, lines)
    for interruption in interruptions(lines):
        _mark(loss, accuracy, interruption)
    accuracy.set_xlabel("optimizer step")
    figure.suptitle(_title(run_dir, lines), x=0.015, ha="left", fontsize=11)
    figure.tight_layout()
    figure.savefig(picture)
    pyplot.close(figure)


def _draw_loss(axes: Axes, steps: Sequence[dict[str, Any]]) -> None:
    places, values = [line["step"] for line in steps], [line["loss"] for line in steps]
    axes.plot(places, values, color=_LOSS, alpha=0.3, linewidth=0.8)
    axes.plot(places, _smooth(values), color=_LOSS, linewidth=1.8, label="training, smoothed")
    axes.set_yscale("log")
    axes.set_ylabel("loss (nats)")
    _tidy(axes)


def _draw_accuracy(axes: Axes, steps: Sequence[dict[str, Any]], lines: Sequence[dict[str, Any]]) -> None:
    places = [line["step"] for line in steps]
    values = _smooth([line["accuracy"] * 100 for line in steps])
    axes.plot(places, values, color=_LOSS, linewidth=1.8, label="training, smoothed")
    held_out = {line["step"]: line["accuracy"] * 100 for line in lines if line["event"] == "evaluation"}
    if held_out:
        axes.plot(
            *zip(*sorted(held_out.items()), strict=True),
            color=_ACCURACY,
            marker="o",
            markersize=4,
            linewidth=1.2,
            label="held out",
        )
    axes.set_ylabel("accuracy (%)")
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    _tidy(axes)


def _mark(loss: Axes, accuracy: Axes, interruption: Interruption) -> None:
    for axes in (loss, accuracy):
        axes.axvline(interruption.step, color=_INTERRUPTED, linewidth=1, linestyle=(0, (4, 3)))
    left, right = loss.get_xlim()
    at_the_end = interruption.step > left + 0.75 * (right - left)
    loss.annotate(
        interruption.label,
        (interruption.step, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(-5 if at_the_end else 5, 0),
        textcoords="offset points",
        ha="right" if at_the_end else "left",
        va="top",
        fontsize=8,
        color=_INTERRUPTED,
    )


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e6e8", linewidth=0.6)
    axes.tick_params(labelsize=8, colors=_FAINT)
    axes.margins(x=0.01)


def _smooth(values: Sequence[float], weight: float = 0.9) -> list[float]:
    """An exponential average that is not biased towards its start."""
    smoothed, total, mass = [], 0.0, 0.0
    for value in values:
        total, mass = weight * total + value, weight * mass + 1
        smoothed.append(total / mass)
    return smoothed


def _title(run_dir: Path, lines: Sequence[dict[str, Any]]) -> str:
    sizes = sorted({line["world_size"] for line in lines if "world_size" in line})
    ranks = " → ".join(str(size) for size in sizes) + (" rank" if sizes == [1] else " ranks")
    attempts = max(line["attempt"] for line in lines)
    return f"{run_dir.name}: {ranks}, {attempts} attempt{'' if attempts == 1 else 's'}"


def main() -> None:
    """Draw `learning-curve.png` into the run's folder."""
    run_dir = Path(sys.argv[1])
    picture = run_dir / "learning-curve.png"
    draw_learning_curve(run_dir, picture)
    sys.stdout.write(f"{picture}\n")


if __name__ == "__main__":
    main()
