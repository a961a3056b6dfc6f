"""The curve of a run's loss, its attempts and its interruptions, as coordinates of a drawing."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainyard_train.contract import surviving_steps
from trainyard_train.observability.report import interruptions

WIDTH, HEIGHT = 720, 200
"""Size of the drawing in its own units; the page scales it."""
MOST_POINTS = 600
"""Points of the line: more are no longer seen."""


@dataclass(frozen=True)
class Mark:
    """An interruption, at its place on the axis."""

    x: float
    label: str


@dataclass(frozen=True)
class Band:
    """An attempt, from its first step to its last."""

    x: float
    width: float
    label: str


@dataclass(frozen=True)
class Curve:
    """The loss over the steps that are in the weights; its axis is logarithmic where all are positive."""

    points: str
    """Points as SVG's polyline has them."""
    smooth: str
    """The same, each the mean of those around it."""
    top: str
    bottom: str
    """Greatest and least loss, as labels."""
    first: int
    last: int
    """Steps at the ends of the axis."""
    marks: Sequence[Mark]
    bands: Sequence[Band]


def curve_of(metrics: Sequence[Mapping[str, Any]]) -> Curve | None:
    """Return the curve of a run's metrics; None before two steps with a finite loss."""
    lines = [dict(line) for line in metrics]
    known = [line for line in surviving_steps(lines) if _is_finite(line.get("loss"))]
    if len(known) < 2:
        return None
    steps: list[int]
    steps, losses = [line["step"] for line in known], [float(line["loss"]) for line in known]
    scaled = [math.log(loss) for loss in losses] if min(losses) > 0 else losses
    first, last, low, high = steps[0], steps[-1], min(scaled), max(scaled)

    def across(step: float) -> float:
        return round(WIDTH * float(step - first) / max(1, last - first), 1)

    def down(value: float) -> float:
        return round(HEIGHT * (1 - (value - low) / ((high - low) or 1.0)), 1)

    every = math.ceil(len(known) / MOST_POINTS)
    shown = [
        (across(steps[at]), down(sum(scaled[at : at + every]) / len(scaled[at : at + every])))
        for at in range(0, len(known), every)
    ]
    marks = [Mark(across(each.step), each.label.replace("\n", ": ")) for each in interruptions(lines)]
    bands = [
        Band(across(start), max(2.0, across(end) - across(start)), f"attempt {number}, {where}".rstrip(", "))
        for number, start, end, where in _attempts(lines)
    ]
    labels = f"{max(losses):.3g}", f"{min(losses):.2g}"
    return Curve(_written(shown), _written(_smoothed(shown)), *labels, first, last, marks, bands)


def _smoothed(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    reach = len(points) // 60
    around = [points[max(0, at - reach) : at + reach + 1] for at in range(len(points))]
    return [(x, sum(y for _, y in near) / len(near)) for (x, _), near in zip(points, around, strict=True)]


def _written(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x},{y:.1f}" for x, y in points)


def _attempts(lines: Sequence[Mapping[str, Any]]) -> list[tuple[int, int, int, str]]:
    """Return number, first step, last step and nodes of each attempt that has a step."""
    found: dict[int, tuple[int, int]] = {}
    nodes: dict[int, str] = {}
    for line in lines:
        if isinstance(line.get("nodes"), list):
            nodes[line["attempt"]] = ", ".join(map(str, line["nodes"]))
        if line["event"] == "step":
            start, _ = found.get(line["attempt"], (line["step"], 0))
            found[line["attempt"]] = start, line["step"]
    return [(number, start, end, nodes.get(number, "")) for number, (start, end) in found.items()]


def _is_finite(value: object) -> bool:
    return type(value) in {int, float} and math.isfinite(value)  # type: ignore[arg-type]
