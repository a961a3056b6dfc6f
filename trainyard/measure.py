"""`trainyard measure`: how long a checkpoint took in a run, kept beside the stack file for the policies."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from infra.errors import InputError, Problem
from trainyard_train.observability.metrics import read_metrics


def measure(metrics: Path, stack_file: Path) -> Path:
    """Write `checkpoint.<stack>.json` from a run's metrics, and return its path.

    The longest of the run's checkpoints counts, from its begin to its commit, and the day on which it ended.

    Raises:
        InputError: the file is not there, or no checkpoint was committed in that run.
    """
    saved = [line for line in read_metrics(metrics) if line["event"] == "checkpoint" and "seconds" in line]
    if not saved:
        got = "no committed checkpoint" if metrics.exists() else "no such file"
        fix = "name the metrics.jsonl of a run of this stack's job, which lies in the run's folder"
        raise InputError([Problem(str(metrics), got, "a run with checkpoints", fix)])
    longest = max(saved, key=lambda line: float(line["seconds"]))
    day = datetime.fromtimestamp(float(longest["time"]), UTC).date()
    stack = stack_file.name.removeprefix("Pulumi.").removesuffix(".yaml")
    file = stack_file.parent / f"checkpoint.{stack}.json"
    file.write_text(json.dumps({"seconds": longest["seconds"], "measured": day.isoformat()}) + "\n")
    return file
