"""What an operation would do to data: previews and `up` refuse to replace or delete it without the user's
word for that resource, and `down` lists it before it acts.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.events import EngineStep
from infra.errors import InputError, Problem, TrainyardError
from infra.targets.data_types import DataResource, DataType, data_in
from trainyard.stack.session import Session

_REFUSED = re.compile(r'unable to replace resource "([^"]+)"|[Rr]esource "?(urn:\S+?)"? cannot be deleted')
"""Errors of the engine about a protected resource (pkg/resource/deploy/step_generator.go)."""
_LOSES = {"create-replacement": "replaced by an EMPTY one", "delete": "deleted"}
_SHRINKS = "replaced by an EMPTY one, since none can shrink"
_LONG = 60
"""Most characters of a value in a sentence."""


def check_data(session: Session, steps: Sequence[EngineStep]) -> None:
    """Refuse steps that lose data, unless the user has released that resource.

    Raises:
        InputError: a sentence for each resource, with its size and the keys that changed.
    """
    lost = {step.urn: _LOSES[step.op] for step in steps if step.op in _LOSES}
    types = session.target.data
    lost |= {
        step.urn: _SHRINKS for step in steps if step.op == "update" and _shrinks(step, types.get(step.type))
    }
    if lost and (problems := list(_losses(session, lost))):
        raise InputError(problems)


def _shrinks(step: EngineStep, kind: DataType | None) -> bool:
    """Whether a size would fall: clouds refuse it, or replace what the engine's plan only updates."""
    before, after = (kind.size_in(inputs) if kind else None for inputs in (step.old, step.new))
    return before is not None and after is not None and after < before


def explained(session: Session, error: TrainyardError) -> TrainyardError:
    """Put a sentence about the data where the engine speaks of protection, and advises to remove it."""
    found = {each: _REFUSED.search(each.got) for each in error.problems}
    refused = {match[1] or match[2]: each for each, match in found.items() if match}
    if not refused:
        return error
    lost = {
        urn: _LOSES["create-replacement" if "replace" in each.got else "delete"]
        for urn, each in refused.items()
    }
    ours = list(_losses(session, lost))
    rest = [each for each, match in found.items() if not match]
    return InputError([*ours, *rest]) if ours else error


def _losses(session: Session, lost: Mapping[str, str]) -> Iterator[Problem]:
    resources = session.engine.resources(session.stack_name)
    changed = changed_keys(resources, session.stack.model_dump(mode="json", by_alias=True))
    released = Released.of(session).names()
    for each in data_in(resources, session.target.data):
        if each.urn in lost and each.name not in released:
            yield _loss(each, lost[each.urn], changed, session)


def _loss(data: DataResource, how: str, changed: Mapping[str, str], session: Session) -> Problem:
    because = {key: text for key, text in changed.items() if _is_below(key, data.kind.replaced_by)}
    path = min(because, default="") or (data.kind.replaced_by[0] if data.kind.replaced_by else data.name)
    reasons = ", ".join(f"{key} {text}" for key, text in because.items())
    kept = "; the old one is kept, and billed" if data.retained else ""
    copied = "" if data.retained else "; nothing is copied"
    got = f"{data} would be {how}{f', because {reasons}' if reasons else ''}{copied}{kept}"
    grows = "" if data.kind.grows else " It cannot grow: a larger one is a new one."
    words = f"trainyard stack unprotect {data.name} -s {session.stack_name} --for 2h"
    return Problem(
        path=path,
        got=got,
        allowed=f"a change that leaves the data where it is.{grows}",
        fix=f"change it back; or copy the data ({data.kind.back}), and release this one: {words}",
    )


def _is_below(key: str, roots: Sequence[str]) -> bool:
    return any(key == root or key.startswith((f"{root}.", f"{root}[")) for root in roots)


def changed_keys(resources: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]) -> dict[str, str]:
    """Return key → `changed from A to B`, of the stack file that was last brought up and the present one.

    The component of the target's cluster has the whole file as its inputs.
    """
    before = next(
        (
            each["inputs"]["stack"]
            for each in resources
            if each["type"].startswith("trainyard:infra:") and "stack" in (each.get("inputs") or {})
        ),
        None,
    )
    if not isinstance(before, Mapping):
        return {}
    return {key: f"changed from {old} to {new}" for key, old, new in _differences("", before, spec)}


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, str, str]]:  # noqa: ANN401 -- JSON
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _differences(f"{path}.{key}" if path else key, old.get(key), new.get(key))
    elif old != new:
        yield path, _short(old), _short(new)


def _short(value: Any) -> str:  # noqa: ANN401 -- JSON
    text = json.dumps(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


@dataclass(frozen=True)
class Released:
    """The resources that the user has released, each until a time: a file of the state."""

    file: Path

    @classmethod
    def of(cls, session: Session) -> Released:
        return cls(session.paths.state / f"{session.stack_name}.released.json")

    def names(self) -> set[str]:
        """Names whose time is not over."""
        return {name for name, until in self._read().items() if until > time.time()}

    def add(self, name: str, until: float) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(json.dumps({**self._read(), name: until}))

    def _read(self) -> dict[str, float]:
        found: dict[str, float] = json.loads(self.file.read_text()) if self.file.exists() else {}
        return found


def release(session: Session, name: str, seconds: float) -> None:
    """Let the next `up` within this time replace or delete one resource with data.

    Raises:
        InputError: the state has no such resource with data.
    """
    known = {each.name: each for each in _data_of(session)}
    if name not in known:
        allowed = ", ".join(sorted(known)) or "none: the stack has no data yet"
        raise InputError([Problem("RESOURCE", name, allowed, "name it as a preview or `down` does")])
    found = known[name]
    if found.protected:
        session.engine.unprotect(session.stack_name, found.urn)
    Released.of(session).add(name, time.time() + seconds)
    until = time.strftime("%H:%M on %d %b", time.localtime(time.time() + seconds))
    text = f"{found}: `up` may replace or delete it until {until}; the one after protects it again"
    session.console.print(text, highlight=False, soft_wrap=True)


def _data_of(session: Session) -> list[DataResource]:
    if not session.engine.exists(session.stack_name):
        return []
    return list(data_in(session.engine.resources(session.stack_name), session.target.data))


def show_fates(session: Session) -> list[DataResource]:
    """Print what `down` would do to the stack's data, in three lists; return what would be deleted."""
    found = _data_of(session)
    remains = session.is_of_others or bool(getattr(session.stack.target, "existing_cluster", None))
    kept = [each for each in found if each.is_kept(cluster_remains=remains)]
    expiring = [each for each in found if each not in kept and each.kind.expires]
    deleted = [each for each in found if each not in kept and not each.kind.expires]
    lists = {
        "deleted with all data": [f"{each}: {each.kind.back}" for each in deleted],
        "kept, and billed until you run": [
            f"{each}: {each.kind.remove.replace('{}', each.physical) or each.kind.back}" for each in kept
        ],
        "deleted by the cloud later": [f"{each}: {each.kind.expires}" for each in expiring],
    }
    for title, lines in lists.items():
        if lines:
            session.console.print(f"[bold]{title}[/]")
            for line in lines:
                session.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    return deleted
