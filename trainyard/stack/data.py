"""What an operation would do to data: previews and `up` refuse to replace or delete it without the user's
word for that resource, and `down` lists it before it acts.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

from engine.events import EngineStep
from infra.clients.kubernetes.api import path_of
from infra.common.names import team_namespace
from infra.common.target_registry import imported
from infra.errors import InputError, Problem, TrainyardError
from infra.stackfile.self_service import today
from infra.targets.data_types import TEAM_NAMESPACE, DataResource, DataType, data_in
from trainyard.stack.session import Session

_REFUSED = re.compile(r'unable to replace resource "([^"]+)"|[Rr]esource "?(urn:\S+?)"? cannot be deleted')
"""Errors of the engine about a protected resource (pkg/resource/deploy/step_generator.go)."""
_LOSES = {"create-replacement": "replaced by an EMPTY one", "delete": "deleted"}
_SHRINKS = "replaced by an EMPTY one, since none can shrink"
_WORKLOADS = ("kueue.x-k8s.io", "v1beta2", "workloads")
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
    for each in data_in(resources, session.target.data, protected=True):
        if each.urn not in lost or each.name in released:
            continue
        is_team = each.kind is TEAM_NAMESPACE
        inside = _inside(session, each, resources) if is_team else ""
        if not is_team or inside or not (session.is_embedded or _may_go(each, resources)):
            yield _loss(each, lost[each.urn], changed, session, inside)


def check_teams(session: Session) -> None:
    """Refuse as `check_data` where no plan is made to delete the namespace of a team (embedded)."""
    present = {team_namespace(each.name) for each in session.stack.teams}
    found = [each for each in _data_of(session) if each.kind is TEAM_NAMESPACE]
    lost = {each.urn: _LOSES["delete"] for each in found if _namespace(each) not in present}
    if lost and (problems := list(_losses(session, lost))):
        raise InputError(problems)


def _namespace(of: DataResource) -> str:
    return str(of.inputs["metadata"]["name"])


def _inside(session: Session, of: DataResource, resources: Sequence[Mapping[str, Any]]) -> str:
    """Name the queue's jobs that have not ended, and users' claims, as a sentence's end; empty for none."""
    namespace = _namespace(of)
    declared = [(each.get("inputs") or {}).get("metadata") or {} for each in resources]
    ours = {each.get("name") for each in declared if each.get("namespace") == namespace}
    try:
        queued = session.api.items(path_of(_WORKLOADS, namespace), empty_on={HTTPStatus.NOT_FOUND})
        claims = session.api.items(path_of(("", "v1", "persistentvolumeclaims"), namespace))
    except TrainyardError as error:
        return f", with what is in it, which is unknown: {error.problems[0].got}"
    jobs = [
        (each["metadata"].get("ownerReferences") or [each["metadata"]])[0]["name"]
        for each in queued
        if ("Finished", "True")
        not in {(at["type"], at["status"]) for at in each.get("status", {}).get("conditions", ())}
    ]
    names = [each["metadata"]["name"] for each in claims]
    found = {"jobs": jobs, "claims": [name for name in names if name not in ours]}
    text = " and ".join(f"the {what} {', '.join(each)}" for what, each in found.items() if each)
    return f", with {text}" if text else ""


def _may_go(of: DataResource, resources: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the team of a namespace was closed by the last `up`, and its time of grace is over."""
    stack = _last_stack(resources)
    grace = (stack.get("self_service") or {}).get("grace_days", 0)
    closed = {team_namespace(each["name"]): each.get("closed") for each in stack.get("teams") or ()}
    day = closed.get(_namespace(of))
    return bool(day) and date.fromisoformat(str(day)) + timedelta(grace) <= today()


def _loss(data: DataResource, how: str, changed: Mapping[str, str], session: Session, inside: str) -> Problem:
    because = {key: text for key, text in changed.items() if _is_below(key, data.kind.replaced_by)}
    path = min(because, default=data.name)
    reasons = ", ".join(f"{key} {text}" for key, text in because.items())
    kept = "; the old one is kept, and billed" if data.retained else ""
    copied = "" if data.retained else "; nothing is copied"
    got = f"{data} would be {how}{f', because {reasons}' if reasons else ''}{inside}{copied}{kept}"
    grows = "" if data.kind.grows else " It cannot grow: a larger one is a new one."
    copy = f"copy the data ({data.kind.back}), and " if data.kind.back else ""
    words = f"trainyard stack unprotect {data.name} -s {session.stack_name} --for 2h"
    return Problem(
        path=path,
        got=got,
        allowed=f"a change that leaves it where it is.{grows}",
        fix=f"change it back; or {copy}release this one: {words}",
    )


def _is_below(key: str, roots: Sequence[str]) -> bool:
    known = ("name", *roots)
    return not roots or any(key == root or key.startswith((f"{root}.", f"{root}[")) for root in known)


def changed_keys(resources: Sequence[Mapping[str, Any]], spec: Mapping[str, Any]) -> dict[str, str]:
    """Return key → `changed from A to B`, of the stack file that was last brought up and the present one.

    The component of the target's cluster has the whole file as its inputs.
    """
    before = _last_stack(resources)
    return dict(_differences("", before, spec)) if before else {}


def _last_stack(resources: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the stack that was last brought up; empty where there is none."""
    for each in resources:
        stack = (each.get("inputs") or {}).get("stack")
        if each["type"].startswith("trainyard:infra:") and isinstance(stack, Mapping):
            return stack
    return {}


def _differences(path: str, old: Any, new: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 -- JSON
    if (olds := _by_name(old)) and (news := _by_name(new)):
        yield from ((f"{path}[{name}]", "was removed") for name in olds.keys() - news.keys())
        old, new = ({name: each[name] for name in olds.keys() & news.keys()} for each in (olds, news))
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from _differences(f"{path}.{key}" if path else key, old.get(key), new.get(key))
    elif old != new:
        yield path, f"changed from {_short(old)} to {_short(new)}"


def _by_name(items: Any) -> dict[str, Any]:  # noqa: ANN401 -- JSON
    """Return the items of a list by their names; empty for other values."""
    named = isinstance(items, list) and all(isinstance(each, Mapping) and "name" in each for each in items)
    return {each["name"]: each for each in items} if named else {}


def _short(value: Any) -> str:  # noqa: ANN401 -- JSON
    text = json.dumps(value)
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


@dataclass(frozen=True)
class Released:
    """The resources that the user has released, each until a time: a file of the state."""

    file: Path

    @classmethod
    def of(cls, session: Session) -> "Released":
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
    known = {each.name: each for each in _data_of(session, protected=True)}
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


def _data_of(session: Session, *, protected: bool = False) -> list[DataResource]:
    if not session.engine.exists(session.stack_name):
        return []
    resources = session.engine.resources(session.stack_name)
    return list(data_in(resources, session.target.data, protected=protected))


def save_last(session: Session, lost: Sequence[DataResource]) -> None:
    """Let the cloud export or back up what `down` deletes. Raises TrainyardError: nothing was deleted."""
    for each in (each for each in lost if each.kind.last):
        session.packages.ensure(session.progress)
        resources = session.engine.resources(session.stack_name)
        imported(each.kind.last)(session.stack, each, resources, session.progress.log)


def show_fates(session: Session) -> list[DataResource]:
    """Print what `down` would do to the stack's data, in three lists; return what would be deleted."""
    found = _data_of(session)
    kept = [each for each in found if each.is_kept(cluster_remains=session.is_of_others)]
    expiring = [each for each in found if each not in kept and each.kind.expires]
    deleted = [each for each in found if each not in kept and not each.kind.expires]
    lists = {
        "deleted with all data": [(each, each.kind.back) for each in deleted],
        "kept, and billed until you run": [(each, each.kind.remove or each.kind.back) for each in kept],
        "deleted by the cloud later": [(each, each.kind.expires) for each in expiring],
    }
    for title, lines in lists.items():
        if lines:
            session.console.print(f"[bold]{title}[/]")
            for each, text in lines:
                line = f"  {each}: {text.replace('{}', each.physical)}"
                session.console.print(line, highlight=False, markup=False, soft_wrap=True)
    return deleted
