"""What a check between the sections of a stack finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches

from infra.spec.source import KeyPath

Finding = tuple[KeyPath, str, str, str]
"""Path, got, allowed, fix."""
Check = Callable[..., Iterator[Finding]]
"""Its parameters name the sections that it needs."""


def unknown(path: KeyPath, got: str, known: Iterable[str], what: str) -> Finding:
    """Return the finding for a name that is not among those known, with the nearest one."""
    names = list(known)
    near = get_close_matches(got, names, n=1, cutoff=0.5)
    fix = f"did you mean {near[0]!r}?" if near else "name one of these, or add it"
    return path, repr(got), f"{what}: {', '.join(names) or 'there is none'}", fix
