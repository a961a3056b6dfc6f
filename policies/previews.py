"""What the last preview of a stack found in order, kept for the update that follows it.

A rule over several resources judges at the end of a run, when all is declared: by then an update has made
them. So an update makes what such a rule concerns only after a preview that had nothing to say about it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

Passed = frozenset[tuple[str, str]]
"""Name of a policy and URN of a resource that it found in order."""

LONGEST_HOURS = 24
"""What was previewed longer ago may be another program by now."""


def file_of(project: str, stack: str, environment: Mapping[str, str]) -> Path:
    """Where it is kept: in the engine's own folder, which a preview and an update of one user share."""
    home = environment.get("PULUMI_HOME") or Path.home() / ".pulumi"
    return Path(home) / "trainyard" / "previews" / f"{project}.{stack}.json"


def forget(file: Path) -> None:
    """Drop what passed before: another preview begins, which may find something or end early."""
    with suppress(OSError):
        file.unlink(missing_ok=True)


def write(file: Path, passed: Iterable[tuple[str, str]]) -> None:
    """Keep what passed. Where nothing can be written, the update refuses, and asks for a preview."""
    data = {"previewed": datetime.now(UTC).isoformat(), "passed": sorted(passed)}
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(data), encoding="utf-8")


def read(file: Path) -> Passed:
    """What passed in a preview of the last hours; nothing where there was none, or its file is damaged."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        age = datetime.now(UTC) - datetime.fromisoformat(data["previewed"])
        recent = age < timedelta(hours=LONGEST_HOURS)
        return frozenset((policy, urn) for policy, urn in data["passed"]) if recent else frozenset()
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()
