"""Prints the summary of a finished job (timeline, figures, next steps), and draws its learning curve."""

import io
import math
import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from engine.paths import Paths
from engine.tables import PlainTable
from infra.stackfile.job import JobSpec
from trainyard.jobs import run_folder, timeline
from trainyard.jobs.history import JobHistory, describe_phase
from trainyard.stack.packages import Packages
from trainyard_train.contract import FILE as METRICS

PLOT = "learning-curve.png"


@dataclass(frozen=True)
class Summary:
    """An ended job, and what its user can do next."""

    stack: str
    job: JobSpec
    run: str
    run_dir: Path
    started: float
    """Unix seconds at which the command began."""
    history: JobHistory

    @property
    def seconds_to_first_step(self) -> float | None:
        """From the command's start to the end of the first step; None if the run began before it."""
        steps = [line["time"] for line in self.history.lines if line["event"] == "step"]
        return steps[0] - self.started if steps and steps[0] > self.started else None

    @property
    def recoveries(self) -> list[tuple[str, float]]:
        """The first event of each preempted node, and the seconds from then to the next new step.

        With a preemption notice the job may continue before the node is deleted, so the time counts from the
        notice.
        """
        losses: dict[str, tuple[str, float]] = {}
        for event in self.history.events:
            node, _, fate = event.text.partition(" ")
            if event.actor == "cloud" and fate in {describe_phase("notice"), describe_phase("killed")}:
                losses.setdefault(node, (event.text, self._until_next_attempt(event.time)))
        return [(text, seconds) for text, seconds in losses.values() if seconds < math.inf]

    @property
    def repeated_steps(self) -> int:
        """Steps that were computed more than once, since they were not checkpointed when a node failed."""
        steps = [line["step"] for line in self.history.lines if line["event"] == "step"]
        return len(steps) - len(set(steps))

    def _until_next_attempt(self, moment: float) -> float:
        attempt = max((line["attempt"] for line in self.history.lines if line["time"] <= moment), default=0)
        later = (
            line["time"]
            for line in self.history.lines
            if line["event"] == "step" and line["attempt"] > attempt
        )
        return min(later, default=math.inf) - moment


def show(console: Console, summary: Summary) -> None:
    """Print the timeline, the figures and the next steps; draw the learning curve beside the checkpoints."""
    plot = draw(summary)
    colour = "green" if summary.history.state.phase == "complete" else "red"
    title = f"\n[bold {colour}]{summary.job.name}: {summary.history.state.phase}[/]\n"
    console.print(title, highlight=False, soft_wrap=True)
    for part in (timeline.table(summary.history.events), _figures(summary), _next_steps(summary, plot)):
        part.show(console)
        console.print()


def draw(summary: Summary) -> Path | None:
    """Draw the learning curve over the spot losses; return where it is, None without a step or matplotlib.

    Raises TrainyardError if the file is a link, which a job of the team may have created.
    """
    if not any(line["event"] == "step" for line in summary.history.lines):
        return None
    if find_spec("matplotlib") is None:
        return None
    from trainyard_train.observability.report import (
        draw_learning_curve,  # matplotlib takes a second to import
    )

    path, metrics = summary.run_dir / PLOT, summary.run_dir / METRICS
    if not os.path.lexists(path) or path.lstat().st_mtime < metrics.lstat().st_mtime:
        picture = io.BytesIO()
        try:
            draw_learning_curve(summary.run, summary.history.lines, picture)
        except (KeyError, TypeError, ValueError):  # another program's metrics, which lack a field
            return None
        run_folder.replace(summary.run_dir, PLOT, picture.getvalue())
    return path


def _figures(summary: Summary) -> PlainTable:
    grid = PlainTable("", "")
    history = summary.history
    if (seconds := summary.seconds_to_first_step) is not None:
        grid.add_row(_dim("command to first step"), f"{seconds:.1f} s")
    for loss, seconds in summary.recoveries:
        grid.add_row(_dim(f"{loss} → first new step"), f"{seconds:.1f} s")
    attempts = len({line["attempt"] for line in history.lines})
    grid.add_row(_dim("attempts"), str(attempts))
    grid.add_row(_dim("steps computed twice"), str(summary.repeated_steps))
    evaluation = next((line for line in reversed(history.lines) if line["event"] == "evaluation"), None)
    if evaluation:
        grid.add_row(_dim("held-out accuracy"), f"{evaluation['accuracy']:.1%}")
    if history.finished:
        grid.add_row(_dim("weights (sha256)"), history.finished["sha256"])
    return grid


def _next_steps(summary: Summary, plot: Path | None) -> PlainTable:
    grid = PlainTable("", "")
    if plot is not None:
        grid.add_row(_dim("learning curve"), escape(str(plot)))
    elif find_spec("matplotlib") is None:
        grid.add_row(_dim("learning curve"), escape(Packages("ui", Paths.from_environment()).command))
    grid.add_row(_dim("checkpoints"), escape(str(summary.run_dir / "checkpoints")))
    grid.add_row(
        _dim("see the cluster"),
        f'eval "$(trainyard stack env -s {summary.stack})" && kubectl get nodes,trainjobs -A',
    )
    grid.add_row(_dim("see it as a page"), f"trainyard ui -s {summary.stack}")
    grid.add_row(_dim("preempt a node"), "trainyard run JOB.YAML & trainyard local preempt spot-0")
    down = f"trainyard down -s {summary.stack}"
    grid.add_row(_dim("remove it"), f"{down}   (retains checkpoints; with --purge deletes them too)")
    return grid


def _dim(name: str) -> str:
    return f"[dim]{escape(name)}[/]"
