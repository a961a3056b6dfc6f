"""Stores the last preview's results of policies over several resources, which the update then requires.

Such a policy is evaluated at the end of a run, when all resources are declared; by then an update has created
them. So an update creates a resource only if it passed these policies in a recent preview.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

Passed = frozenset[tuple[str, str]]
"""Pairs (policy name, URN) of resources that passed a policy."""

LONGEST_HOURS = 24
"""Maximum age of a preview in hours: the program may have changed since an older one."""


def file_of(project: str, stack: str, environment: Mapping[str, str]) -> Path:
    """Return the file: in the engine's home, which a preview and an update of one user share."""
    home = environment.get("PULUMI_HOME") or Path.home() / ".pulumi"
    return Path(home) / "trainyard" / "previews" / f"{project}.{stack}.json"


def forget(file: Path) -> None:
    """Delete the last results when another preview begins: it may find something or end early."""
    with suppress(OSError):
        file.unlink(missing_ok=True)


def write(file: Path, passed: Iterable[tuple[str, str]]) -> None:
    """Write the results. Where that fails, the update refuses and asks for a preview."""
    data = {"previewed": datetime.now(UTC).isoformat(), "passed": sorted(passed)}
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(data), encoding="utf-8")


def read(file: Path) -> Passed:
    """Return the results of a preview of the last hours; empty if there is none or its file is damaged."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        age = datetime.now(UTC) - datetime.fromisoformat(data["previewed"])
        recent = age < timedelta(hours=LONGEST_HOURS)
        return frozenset((policy, urn) for policy, urn in data["passed"]) if recent else frozenset()
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()
