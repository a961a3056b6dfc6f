"""Parses Pulumi's JSON events, shows their progress to the user, and collects changes and errors."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.progress import Progress, Task
from infra.errors import GO_ON, Problem, problems_in

DONE_WORDS = {
    "create": "created",
    "create-replacement": "created replacement",
    "update": "updated",
    "delete": "deleted",
    "delete-replaced": "deleted replaced",
    "discard-replaced": "removed replaced from state",
    "read": "read",
    "import": "imported",
}
SUMMARY_WORDS = {
    "create": "created",
    "update": "updated",
    "replace": "replaced",
    "delete": "deleted",
    "import": "imported",
    "adopt": "adopted",
    "same": "unchanged",
}

Advice = Callable[[str], str]
"""Function from a provider's message to the next step; the step is empty where none is known."""
GENERIC = re.compile(
    r"(update|preview|destroy|refresh) failed"
    r"|(an unhandled error occurred: )?Program exited with non-zero exit code: \d+"
)
"""Last errors of the engine, which follow from others."""


UNREACHABLE = re.compile(
    r"cluster is unreachable.*(i/o timeout|no such host|deadline exceeded|Timeout)", re.S
)
"""Error messages of an unreachable API server: those of pulumi-kubernetes and of Go's network library."""
CHANGES = frozenset({"create", "update", "delete", "create-replacement", "import"})
"""Operations that count as changes; a replacement counts by the step with both old and new inputs."""


SILENCE_SECONDS = 60.0
"""Seconds without the end of a resource after which what lasts is logged."""
COMPONENTS = ("pulumi:pulumi:Stack", "trainyard:infra:", "trainyard:platform:")
"""Beginnings of the types of what lasts as long as its parts."""
NUM_SHOWN = 3
"""Number of resources that a line names."""


@dataclass(frozen=True)
class EngineStep:
    """One change of one resource, from the engine's event: secrets hidden, unknown values marked."""

    op: str
    """Operation: `create`, `update`, `delete` or `create-replacement`."""
    urn: str
    old: Mapping[str, Any]
    new: Mapping[str, Any]
    """Inputs after the step; `old` has the inputs before. Both can be empty."""
    keys: tuple[str, ...] = ()
    """Properties that cause a replacement."""
    paths: tuple[str, ...] = ()
    """Paths of what changes, as the provider reports them: `spec.replicas`."""

    @classmethod
    def of(cls, metadata: Mapping[str, Any]) -> "EngineStep":
        """Read it from an event's metadata."""
        old, new = ((metadata.get(side) or {}).get("inputs") or {} for side in ("old", "new"))
        paths = sorted(metadata.get("detailedDiff") or metadata.get("diffs") or ())
        return cls(metadata["op"], metadata["urn"], old, new, tuple(metadata.get("keys") or ()), tuple(paths))

    @property
    def type(self) -> str:
        return self.urn.split("::")[2].rpartition("$")[2]

    @property
    def name(self) -> str:
        return self.urn.split("::", 3)[3]


@dataclass(frozen=True)
class OperationResult:
    """Result of an operation: changes, duration and steps."""

    stack: str
    operation: str
    changes: Mapping[str, int]
    """Operation (`create`, `update`, `same`, …) → number of resources, done or (at a preview) planned."""
    seconds: float
    is_preview: bool = False
    announced: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)
    """States of the resources that a preview would create, from the engine's events."""
    steps: tuple[EngineStep, ...] = field(default=(), repr=False)
    """Steps of all resources that change, done or planned."""

    @property
    def changed(self) -> bool:
        return any(number for change, number in self.changes.items() if change != "same")

    def summary(self) -> str:
        """Return it as one line."""
        counts = [
            f"{self.changes[change]} {word}"
            for change, word in SUMMARY_WORDS.items()
            if self.changes.get(change)
        ]
        counted = ", ".join(counts) or "nothing to do"
        would = "would be " if self.is_preview else ""
        return f"{self.operation} {self.stack}: {would}{counted} ({self.seconds:.1f} s)"


@dataclass
class EventReporter:
    """Reads the engine's events in order, reports progress, and collects errors."""

    progress: Progress
    task: Task
    advise: Advice = lambda _message: ""
    changes: Mapping[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    announced: list[Mapping[str, Any]] = field(default_factory=list)
    """States of the resources that a preview would create."""
    steps: list[EngineStep] = field(default_factory=list)
    """Changes in the order in which they begin."""
    _started: dict[str, float] = field(default_factory=dict)
    """URN → when the engine began with it, until it ends."""
    _done: int = 0

    def take(self, line: str) -> None:
        """Read one line; lines that are no events (the engine prints some plain ones) are ignored."""
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            return
        for name, handle in self._handlers.items():
            if name in event:
                handle(self, event[name])

    @contextmanager
    def logging_what_lasts(self, silence_seconds: float = SILENCE_SECONDS) -> Iterator[None]:
        """Log what the engine is at, again and again while nothing ends."""
        over = threading.Event()

        def log() -> None:
            done = self._done
            while not over.wait(silence_seconds):
                if self._done == done and (lasting := self._lasting()):
                    self.progress.log(f"still at {lasting}")
                done = self._done

        logger = threading.Thread(target=log, daemon=True)
        logger.start()
        try:
            yield
        finally:
            over.set()
            logger.join()

    def _lasting(self) -> str:
        now = time.monotonic()
        begun = {label(urn): now - since for urn, since in self._started.copy().items()}
        lasting = {name: seconds for name, seconds in begun.items() if not name.startswith(COMPONENTS)}
        first = [f"{name} for {seconds:.0f} s" for name, seconds in list(lasting.items())[:NUM_SHOWN]]
        more = len(lasting) - len(first)
        return ", ".join(first) + (f" and {more} more" if more else "")

    def specific(self) -> list[Problem]:
        """The errors, without the engine's final "update failed" unless it is the only one.

        An API server that does not answer fails every object in it: only the first is reported.
        """
        causes = [problem for problem in self.problems if not GENERIC.fullmatch(problem.got)] or self.problems
        silent = [problem for problem in causes if UNREACHABLE.search(problem.got)]
        return [problem for problem in causes if problem not in silent[1:]]

    def _begins(self, event: Mapping[str, Any]) -> None:
        metadata = event["metadata"]
        self._started[metadata["urn"]] = time.monotonic()
        if event.get("planning") and metadata["op"] == "create":
            self.announced.append(metadata["new"])
        if metadata["op"] in CHANGES:
            self.steps.append(EngineStep.of(metadata))
        if metadata["op"] != "same":
            self.task.advanced(self._done, text=label(metadata["urn"]))

    def _ends(self, event: Mapping[str, Any]) -> None:
        metadata, planning = event["metadata"], event.get("planning", False)
        self._done += 1
        began = self._started.pop(metadata["urn"], time.monotonic())
        word = DONE_WORDS.get(metadata["op"])
        if word is None:
            return
        if planning:
            self.progress.log(f"{metadata['op']:8} {label(metadata['urn'])}")
            return
        seconds = time.monotonic() - began
        self.progress.log(f"{word:8} {label(metadata['urn'])} {seconds:.1f} s")

    def _fails(self, event: Mapping[str, Any]) -> None:
        self._started.pop(event["metadata"]["urn"], None)

    def _diagnoses(self, event: Mapping[str, Any]) -> None:
        message, severity = event["message"].strip(), event["severity"]
        urn = event.get("urn", "")
        if not message or severity == "debug":
            return
        if event.get("ephemeral"):
            self.task.advanced(self._done, text=f"{label(urn)}: {message}")
        elif severity == "error":
            general = Problem(label(urn) or "the stack", message, "no error", self.advise(message) or GO_ON)
            self.problems += problems_in(message) or [general]
        else:
            where = f"{label(urn)}: " if urn else ""
            self.progress.log(f"{severity.partition('#')[0]}: {where}{message}")

    def _policy_event(self, event: Mapping[str, Any]) -> None:
        name = f"{event['policyPackName']}/{event['policyName']}"
        message = event["message"].strip()
        where = label(event.get("resourceUrn", "")) or "the stack"
        if event["enforcementLevel"] == "mandatory":
            fix = "change the stack file, or complete the exemption above (docs/policies.md#exemptions)"
            self.problems.append(Problem(where, message, f"what the policy {name} allows", fix))
        else:
            self.progress.log(f"warning: {where}: {name}: {message}")

    def _summary(self, event: Mapping[str, Any]) -> None:
        self.changes = event.get("resourceChanges") or {}

    _handlers = {  # noqa: RUF012 -- shared by all instances
        "resourcePreEvent": _begins,
        "resOutputsEvent": _ends,
        "resOpFailedEvent": _fails,
        "diagnosticEvent": _diagnoses,
        "policyEvent": _policy_event,
        "summaryEvent": _summary,
    }


def steps_in(log: Path) -> list[EngineStep]:
    """Return the changes in the engine's `--event-log`; empty where it ended before its first event."""
    lines = log.read_text().splitlines() if log.exists() else []
    begun = [event["metadata"] for line in lines if (event := json.loads(line).get("resourcePreEvent"))]
    return [EngineStep.of(metadata) for metadata in begun if metadata["op"] in CHANGES]


def label(urn: str) -> str:
    """A URN's type and name (`apps/v1:Deployment kueue`), empty for none."""
    parts = urn.split("::")
    if len(parts) < 4:
        return ""
    kind = parts[2].rpartition("$")[2]
    return f"{kind.removeprefix('kubernetes:')} {parts[3]}"
