"""Runs checks over the sections of a file, and collects the problems that they yield."""

import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from infra.errors import Problem, did_you_mean
from infra.stackfile.source import KeyPath, SpecSource

Finding = tuple[KeyPath, str, str, str]
"""One violation: path, found value, allowed values, next step."""
Check = Callable[..., Iterator[Finding]]
"""Function that yields findings; its parameters name the sections that it needs."""


class Checks:
    """The checks of a module: all its public functions, and those that it shares with others.

    They are discovered at run time, so that no list can omit one; a module's helpers are private.
    """

    def __init__(self, module: str, *shared: Check) -> None:
        self._module, self._shared = module, shared

    def __iter__(self) -> Iterator[Check]:
        for name, value in vars(sys.modules[self._module]).items():
            own = inspect.isfunction(value) and value.__module__ == self._module
            if own and not name.startswith("_"):
                yield value
        yield from self._shared


def run(
    checks: Iterable[Check], known: Collection[str], sections: Mapping[str, Any], source: SpecSource
) -> list[Problem]:
    """Run the checks whose sections all exist, and collect their findings.

    `known` are all sections that the file can have. TypeError for a check that asks for another one: it would
    never be run.
    """
    all_checks = [*checks]
    found = [*found_by(all_checks, known, sections), *_of_second_filesystem(all_checks, known, sections)]
    return [
        Problem(source.show(path), got, allowed, fix, source.location(path))
        for path, got, allowed, fix in found
    ]


def _of_second_filesystem(
    checks: Iterable[Check], known: Collection[str], sections: Mapping[str, Any]
) -> Iterator[Finding]:
    """Check the second filesystem as if it were the stack's, which it becomes when the two are exchanged."""
    target, path = sections.get("target"), ("target", "second_filesystem")
    if target is None or (second := getattr(target, path[1], None)) is None:
        return
    if second.name == target.filesystem.name:
        fix = "name the new one; it keeps its name when the two are exchanged"
        yield (*path, "name"), repr(second.name), "another name than that of `filesystem`", fix
    exchanged = target.model_copy(update={"filesystem": second, path[1]: None})
    for where, got, allowed, fix in found_by(checks, known, {**sections, "target": exchanged}):
        if where[:2] == ("target", "filesystem"):
            yield (*path, *where[2:]), got, allowed, fix


def found_by(
    checks: Iterable[Check], known: Collection[str], sections: Mapping[str, Any]
) -> Iterator[Finding]:
    """Run the checks whose sections all exist, and yield their findings. TypeError as in `run`."""
    for check in checks:
        needed = inspect.signature(check).parameters
        for name in needed.keys() - known:
            near = get_close_matches(name, known, n=1, cutoff=0)
            asks = f"{check.__module__}.{check.__name__} asks for a section {name!r}"
            raise TypeError(f"{asks}; did you mean {near[0]!r}?")
        if needed.keys() <= sections.keys():
            yield from check(**{name: sections[name] for name in needed})


def unknown(path: KeyPath, got: str, known: Iterable[str], what: str) -> Finding:
    """Return the finding for a name that is not among those known, with the nearest one."""
    names = list(known)
    fix = did_you_mean(got, names, "name one of these, or add it" if names else "add one")
    return path, repr(got), f"{what}: {', '.join(names) or 'none'}", fix
