"""What a check between the sections of a file finds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from infra.errors import Problem
from infra.spec.source import KeyPath, Source

Finding = tuple[KeyPath, str, str, str]
"""Path, got, allowed, fix."""
Check = Callable[..., Iterator[Finding]]
"""Its parameters name the sections that it needs."""


def run(checks: Iterable[Check], sections: Mapping[str, Any], source: Source) -> list[Problem]:
    """Run the checks whose sections are all there, and collect what they find."""
    problems = []
    for check in checks:
        needed = inspect.signature(check).parameters
        if needed.keys() <= sections.keys():
            for path, got, allowed, fix in check(**{name: sections[name] for name in needed}):
                problems.append(Problem(source.show(path), got, allowed, fix, source.location(path)))
    return problems


def unknown(path: KeyPath, got: str, known: Iterable[str], what: str) -> Finding:
    """Return the finding for a name that is not among those known, with the nearest one."""
    names = list(known)
    near = get_close_matches(got, names, n=1, cutoff=0.5)
    fix = f"did you mean {near[0]!r}?" if near else "name one of these, or add it"
    return path, repr(got), f"{what}: {', '.join(names) or 'there is none'}", fix
