"""What other programs know of a run, without PyTorch: its metrics file, its exit codes, the part of a pod's
grace period that it uses, and the variable that says what it was started from.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

EXIT_PREEMPTED: Final = 75
"""EX_TEMPFAIL: exited on a preemption notice with a checkpoint committed, or before the first step. Run it
again."""
EXIT_PEER_FAILED: Final = 76
"""Another rank failed, and this one did not: all may restart at once."""
EXIT_ABSENT_RANK: Final = 77
"""Not all ranks joined in time."""
EXIT_FAILED: Final = 1
EXIT_WRONG_CONFIG: Final = 2
EXIT_UNUSABLE: Final = 78
"""There are checkpoints, and none can be used: a restart would find the same."""
EXIT_NOT_DURABLE: Final = 79
"""No checkpoint became durable for as long as the configuration allows: the storage needs a person."""
EXIT_NO_FABRIC: Final = 192
"""Ranks leave the fabric of their pool, or use a part of it; as of the hook that looks before they start."""
FILE: Final = "metrics.jsonl"
"""Name of the metrics in a run's folder, a line of JSON for each event."""
ORIGIN: Final = "TRAINYARD_ORIGIN"
"""Variable with what a run was started from (code, image, command, data, commit), as JSON, which
`trainyard run` sets."""
_EXIT_SECONDS: Final = 5.0
"""Seconds of a pod's grace period that are reserved for the signal to arrive and the processes to end."""
_EXIT_SHARE: Final = 0.25
"""Maximum share of the grace period that is reserved, the margin of the policy `spot-checkpoint-time`."""


def exit_seconds(grace_seconds: float) -> float:
    """Seconds from SIGTERM to the exit, so that it comes before SIGKILL."""
    return grace_seconds - min(_EXIT_SECONDS, _EXIT_SHARE * grace_seconds)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read all whole lines of a metrics file; a line that was cut short by a kill is left out."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return [line for line in map(parse_line, file) if line is not None]
    except FileNotFoundError:
        return []


def parse_line(text: str) -> dict[str, Any] | None:
    """Parse one line as a mapping; None for a torn one."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) and {"event", "attempt", "time"} <= line.keys() else None


def surviving_steps(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The `step` lines that are in the final weights: what an attempt repeated counts once, the last time."""
    latest: dict[int, dict[str, Any]] = {}
    for line in lines:
        if line["event"] == "step":
            latest[line["step"]] = line
    return [latest[step] for step in sorted(latest)]


def origin_of(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Return the origin; empty if the variable is not set or cannot be read."""
    try:
        found = json.loads(environment.get(ORIGIN, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
