"""Metrics listener that draws a run's progress bar on a terminal."""

from __future__ import annotations

from typing import Any, TextIO

from trainyard_train.config_base import extra
from trainyard_train.observability.metrics import Listener

_LAST = frozenset({"finished", "preempted", "failed"})


def bar(terminal: TextIO) -> Listener:
    """Return a listener that draws a run's steps, last loss, held-out accuracy and last saved step."""
    with extra("cli"):
        from tqdm import tqdm  # type: ignore[import-untyped]

    tqdm.monitor_interval = 0  # disables the thread that redraws an idle bar
    drawn: tqdm[Any] | None = None
    words = {"loss": "", "held out": "", "saved": ""}  # in this order, whichever is known first

    def show(line: dict[str, Any]) -> None:
        nonlocal drawn
        event = line["event"]
        if event in {"started", "resumed"}:
            drawn = tqdm(
                total=line["steps"], initial=line["step"], file=terminal, unit=" steps", dynamic_ncols=True
            )
        if drawn is None:
            return
        if event == "step":
            words["loss"] = f"loss {line['loss']:.4f}"
            drawn.set_postfix_str(", ".join(filter(None, words.values())), refresh=False)
            drawn.update(line["step"] - drawn.n)
        elif event == "evaluation":
            words["held out"] = f"held out {line['accuracy']:.1%}"
        elif event == "checkpoint":
            words["saved"] = f"saved {line['step']}"
        elif event in _LAST:
            drawn.set_postfix_str(", ".join(filter(None, words.values())))
            drawn.close()

    return show
