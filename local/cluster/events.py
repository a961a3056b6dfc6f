"""Writes and reads the log of the phases of nodes' preemptions and restores, in a file of JSON lines."""

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class PreemptionEvent:
    """One phase of a preemption or a return."""

    node: str
    phase: str
    time: float
    """Time in Unix seconds."""


@dataclass
class EventLog:
    """Log of preemptions in a file of JSON lines."""

    path: Path
    events: list[PreemptionEvent] = field(default_factory=list)

    def record(self, node: str, phase: str) -> None:
        """Append a phase that begins or is reached now."""
        event = PreemptionEvent(node, phase, time.time())
        self.events.append(event)
        with self.path.open("a") as file:
            file.write(json.dumps(asdict(event)) + "\n")


def read_events(path: Path) -> list[PreemptionEvent]:
    """Every event so far; none when there is no file."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [PreemptionEvent(**json.loads(line)) for line in lines]
