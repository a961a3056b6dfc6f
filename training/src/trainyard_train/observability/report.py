"""Writes an HTML report of a run: learning curve, interruptions, goodput.

`python -m trainyard_train.observability.report RUN_DIR` writes `report.html` and `learning-curve.png` into
the run's folder.
"""

from __future__ import annotations

import argparse
import base64
import html
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from trainyard_train.config_base import extra
from trainyard_train.contract import FILE, read_metrics, surviving_steps
from trainyard_train.observability.goodput import Goodput, goodput
from trainyard_train.observability.rank_log import log_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LOSS: Final = "#2f6f9f"
_ACCURACY: Final = "#c8691c"
_INTERRUPTED: Final = "#b3261e"
_FAINT: Final = "#5f6b76"


@dataclass(frozen=True)
class Interruption:
    """An attempt that ended early, and the one that resumed."""

    step: int
    """Last step before the interruption; no step was repeated if it equals `resumed_step`."""
    resumed_step: int
    seconds: float
    """Seconds from the last step before the interruption to the first step after it."""
    noticed: bool
    """Whether a preemption notice preceded the interruption."""

    @property
    def label(self) -> str:
        """The interruption in words."""
        repeated = self.step - self.resumed_step
        kind = "preempted" if self.noticed else "failed without notice"
        return f"{kind}\n{self.seconds:.0f} s, {repeated} step{'' if repeated == 1 else 's'} repeated"


def interruptions(lines: Sequence[dict[str, Any]]) -> list[Interruption]:
    """Interruptions of a run, in order; an attempt without a step is part of the interruption before it."""
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


def draw_learning_curve(run: str, lines: Sequence[dict[str, Any]], picture: Path | BinaryIO) -> None:
    """Draw loss and accuracy over the steps of a run to a PNG.

    Args:
        run: name of the run, for the title.
        lines: metrics of the run, as `read_metrics` returns them.
        picture: a path, or an open file.

    Raises:
        ValueError: the run has no step yet.
        ConfigError: matplotlib is not installed.
    """
    steps = surviving_steps(lines)
    if not steps:
        raise ValueError("no step yet")
    with extra("report"):
        import matplotlib as mpl

        mpl.use("Agg")  # no display, and none of its start-up
        from matplotlib import pyplot

    figure, (loss, accuracy) = pyplot.subplots(2, 1, figsize=(9, 5.6), dpi=150, sharex=True)
    xs, values = [line["step"] for line in steps], [line["loss"] for line in steps]
    loss.plot(xs, values, color=_LOSS, alpha=0.3, linewidth=0.8)
    loss.plot(xs, _smooth(values), color=_LOSS, linewidth=1.8, label="training, smoothed")
    loss.set_yscale("log")
    loss.set_ylabel("loss (nats)")
    hits = _smooth([line["accuracy"] * 100 for line in steps])
    accuracy.plot(xs, hits, color=_LOSS, linewidth=1.8, label="training, smoothed")
    held_out = {line["step"]: line["accuracy"] * 100 for line in lines if line["event"] == "evaluation"}
    style = {"color": _ACCURACY, "marker": "o", "markersize": 4, "linewidth": 1.2, "label": "held out"}
    if held_out:
        accuracy.plot(*zip(*sorted(held_out.items()), strict=True), **style)
    accuracy.set_ylabel("accuracy (%)")
    accuracy.legend(frameon=False, fontsize=8, loc="lower right")
    for axes in (loss, accuracy):
        _clean_up(axes)
    for interruption in interruptions(lines):
        _mark(loss, accuracy, interruption)
    accuracy.set_xlabel("optimizer step")
    figure.suptitle(_title(run, lines), x=0.015, ha="left", fontsize=11)
    figure.tight_layout()
    figure.savefig(picture, format="png")
    pyplot.close(figure)


def _mark(loss: Axes, accuracy: Axes, interruption: Interruption) -> None:
    for axes in (loss, accuracy):
        axes.axvline(interruption.step, color=_INTERRUPTED, linewidth=1, linestyle=(0, (4, 3)))
    left, right = loss.get_xlim()
    is_at_the_end = interruption.step > left + 0.75 * (right - left)
    loss.annotate(
        interruption.label,
        (interruption.step, 0.97),
        xycoords=("data", "axes fraction"),
        xytext=(-5 if is_at_the_end else 5, 0),
        textcoords="offset points",
        ha="right" if is_at_the_end else "left",
        va="top",
        fontsize=8,
        color=_INTERRUPTED,
    )


def _clean_up(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e6e8", linewidth=0.6)
    axes.tick_params(labelsize=8, colors=_FAINT)
    axes.margins(x=0.01)


def _smooth(values: Sequence[float], weight: float = 0.9) -> list[float]:
    """Exponential average that is not biased towards its start."""
    smoothed, total, mass = [], 0.0, 0.0
    for value in values:
        total, mass = weight * total + value, weight * mass + 1
        smoothed.append(total / mass)
    return smoothed


def _title(run: str, lines: Sequence[dict[str, Any]]) -> str:
    sizes = sorted({line["world_size"] for line in lines if "world_size" in line})
    ranks = " → ".join(str(size) for size in sizes) + (" rank" if sizes == [1] else " ranks")
    attempts = max(line["attempt"] for line in lines)
    return f"{run}: {ranks}, {attempts} attempt{'' if attempts == 1 else 's'}"


_COLOURS: Final = {
    "productive": "#2e7d5b",
    "repeated": _INTERRUPTED,
    "checkpoint": _ACCURACY,
    "evaluation": _LOSS,
    "startup": "#8e6bb0",
    "waiting": "#9aa5ad",
}


def write_report(run_dir: Path, page: Path) -> None:
    """Write one HTML file that needs nothing else. Raises ValueError: the run has no step yet."""
    lines = read_metrics(run_dir / FILE)
    picture = run_dir / "learning-curve.png"
    draw_learning_curve(run_dir.name, lines, picture)
    image = base64.b64encode(picture.read_bytes()).decode()
    attempts = "".join(_attempt_row(number, lines) for number in sorted({line["attempt"] for line in lines}))
    text = _PAGE.format(
        title=html.escape(_title(run_dir.name, lines)),
        style=_STYLE,
        facts=_facts(lines),
        bar=_time_bar(goodput(lines)),
        image=image,
        attempts=attempts,
    )
    staged = page.with_suffix(".tmp")
    staged.write_text(text, encoding="utf-8")
    staged.replace(page)


def _facts(lines: Sequence[dict[str, Any]]) -> str:
    steps = surviving_steps(lines)
    saves = [line for line in lines if line["event"] == "checkpoint"]
    looks = [line for line in lines if line["event"] == "evaluation"]
    rates = sorted(line["samples_per_second"] for line in steps if "samples_per_second" in line)
    facts = {
        "goodput": f"{goodput(lines).share:.1%}",
        "steps": f"{steps[-1]['step']:,}",
        "training loss": f"{steps[-1]['loss']:.4f}",
        "held-out accuracy": f"{looks[-1]['accuracy']:.1%}" if looks else "–",
        "samples/s, median": f"{rates[len(rates) // 2]:,.0f}" if rates else "–",
        "checkpoints": f"{len(saves)}",
        "failed checkpoints": str(sum(line["event"] == "checkpoint_failed" for line in lines)),
    }
    return "".join(f"<div><b>{html.escape(value)}</b>{name}</div>" for name, value in facts.items())


def _time_bar(spent: Goodput) -> str:
    parts, legend = [], []
    for name, seconds in asdict(spent).items():
        share = seconds / spent.total * 100 if spent.total else 0
        colour = _COLOURS[name]
        parts.append(f'<i style="width:{share:.3f}%;background:{colour}"></i>')
        legend.append(
            f'<span><i style="background:{colour}"></i>{name} {seconds:,.1f} s ({share:.1f}%)</span>'
        )
    return f'<div class="bar">{"".join(parts)}</div><p class="legend">{"".join(legend)}</p>'


def _attempt_row(number: int, lines: Sequence[dict[str, Any]]) -> str:
    own = [line for line in lines if line["attempt"] == number]
    begun = next((line for line in own if line["event"] in {"started", "resumed"}), {})
    last = own[-1]
    end = {"finished": "finished", "preempted": "preempted", "failed": "failed"}.get(
        last["event"], "terminated without notice"
    )
    cells = (
        number,
        time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(own[0]["time"])),
        ", ".join(begun.get("nodes", [])),
        f"{begun.get('step', 0)} – {last['step']}",
        f"{last['time'] - own[0]['time']:,.1f} s",
        f"{end}: {last['error']}" if "error" in last else end,
    )
    return f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in cells)}</tr>"


_STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#1d2429}
h1{font-size:1.3em} h2{font-size:1em;margin:2em 0 .5em} img{max-width:100%}
.facts{display:flex;flex-wrap:wrap;gap:1.5em} .facts div{color:#5f6b76} .facts b{display:block;
font-size:1.4em;color:#1d2429} .bar{display:flex;height:22px;border-radius:4px;overflow:hidden}
.legend{display:flex;flex-wrap:wrap;gap:.2em 1.2em;font-size:.85em}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}
table{border-collapse:collapse;width:100%;font-size:.9em} th,td{text-align:left;padding:.3em .8em .3em 0;
border-bottom:1px solid #e3e6e8;vertical-align:top}
"""
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head><body>
<h1>{title}</h1>
<div class="facts">{facts}</div>
<h2>Where the time went</h2>{bar}
<h2>Learning</h2><img alt="loss and accuracy over steps" src="data:image/png;base64,{image}">
<h2>Attempts</h2>
<table><tr><th>attempt</th><th>began (UTC)</th><th>nodes</th><th>steps</th><th>lasted</th><th>ended</th></tr>
{attempts}</table>
</body></html>
"""


def main() -> int:
    """Write the report; returns 0, or 1 if the run has no step yet."""
    parser = argparse.ArgumentParser(
        prog="python -m trainyard_train.observability.report",
        description="Write report.html and learning-curve.png into a run's folder.",
    )
    parser.add_argument("run_dir", type=Path, help="folder of the run")
    run_dir: Path = parser.parse_args().run_dir
    try:
        write_report(run_dir, run_dir / "report.html")
    except ValueError as error:
        log_line(f"{run_dir / FILE}: {error}")
        return 1
    sys.stdout.write(f"{run_dir / 'report.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
