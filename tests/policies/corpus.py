"""The corpus of the policies: compliant resources, and cases that each break one property of one of them.

Each case is a pair: the compliant resource and its violating twin. Both are evaluated with the same
configuration, unless the difference is in the configuration.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from policies.config import EvaluatedStack
from policies.evaluation import MAKE_KNOWN, Finding, PolicyEvaluator
from policies.pack import POLICIES
from policies.policy import Policy, Resource
from policies.related_resources import RelatedResource, RelatedResources
from policies.unknowns import UNKNOWN, PropertyBlock
from tests import patches
from tests.tables import table

FOLDER = Path(__file__).parent / "cases"
TODAY = datetime.now(UTC).date()

CONFIG: Mapping[str, Any] = table(__file__)["config"]
PARAMETERS: Mapping[str, Mapping[str, Any]] = table(__file__)["parameters"]
UNKNOWN_VALUE, THIS, THIS_AND_ANOTHER = "$unknown", "$this", "$this-and-another"
"""Placeholders for an output of another resource, of the resource beside a companion, and of both."""


@dataclass(frozen=True)
class StackContext:
    """The inputs of an evaluation besides the resource, as JSON."""

    config: str
    parameters: str

    @classmethod
    def of(cls, config: Mapping[str, Any], parameters: Mapping[str, Any]) -> StackContext:
        """Make a context of texts, so that equal contexts are equal and can share a run of the engine."""
        return cls(*(json.dumps(part, sort_keys=True) for part in (config, parameters)))


@dataclass(frozen=True)
class Twin:
    """One resource of a pair, and the context that it is evaluated in."""

    name: str
    type: str
    props: Mapping[str, Any]
    protect: bool
    component: bool
    context: StackContext
    beside: tuple[Twin, ...] = ()
    """Companions that are declared with it: `$this` in their properties is this resource's ID."""


@dataclass(frozen=True)
class Case:
    """A pair: the compliant twin, and the one that violates `policy`."""

    policy: str
    message: str
    """The violation's exact text, without the remedy."""
    also: frozenset[str]
    """Other policies that the same property violates."""
    clean: Twin
    violating: Twin
    change: Mapping[str, Any]
    """Property path → value by which the violating twin differs."""


@cache
def load() -> list[Case]:
    """Return all cases, named after policy, resource and their number in the file."""
    compliant = read(FOLDER / "compliant.yaml")
    files = sorted(file for file in FOLDER.glob("*.yaml") if file.stem != "compliant")
    return [
        _case(f"{file.stem}-{index}-{entry['resource']}", entry, compliant)
        for file in files
        for index, entry in enumerate(read(file))
    ]


@cache
def read(file: Path) -> Any:
    """Return the content of a file of the corpus."""
    return yaml.load(file.read_text(), Loader=yaml.CSafeLoader)


def _case(name: str, entry: Mapping[str, Any], compliant: Mapping[str, Mapping[str, Any]]) -> Case:
    base = _dated(json.loads(json.dumps(compliant[entry["resource"]]).replace("$name", f"{name}-clean")))
    entry = _dated(entry)
    config = {**CONFIG, **base.get("config", {})}
    parameters = {**PARAMETERS, **base.get("parameters", {})}
    clean = Twin(
        name=f"{name}-clean",
        type=entry.get("as", base["type"]),
        props=base["props"],
        protect=base.get("protect", False),
        component=base.get("component", False),
        context=StackContext.of({**config, **_alone(base, f"{name}-clean")}, parameters),
    )
    beside = {kind: compliant[kind] for kind in base.get("beside", ())}
    clean = replace(clean, beside=_beside(clean, beside, {}))
    changed = {
        key: value for key, value in {**config, **entry.get("set_config", {})}.items() if value is not None
    }
    changed |= _alone(base, f"{name}-violates")
    context = StackContext.of(changed, parameters)
    violating = replace(
        clean,
        name=f"{name}-violates",
        props=patches.changed(base["props"], entry.get("set", {})),
        protect=entry.get("set_protect", clean.protect),
        context=context,
    )
    violating = replace(violating, beside=_beside(violating, beside, entry.get("set_beside", {})))
    message = entry["message"].replace("$make-known", MAKE_KNOWN)
    also = frozenset(entry.get("also", ()))
    return Case(entry["policy"], message, also, clean, violating, entry.get("set", {}))


def deferring(twin: Twin, later: Mapping[str, Any]) -> Twin:
    """Return the twin with other values by path, in a stack that defers what is not known."""
    config = {**json.loads(twin.context.config), "trainyard:unknown": "defer"}
    context = replace(twin.context, config=json.dumps(config, sort_keys=True))
    return replace(twin, props=patches.changed(twin.props, later), context=context)


def _alone(base: Mapping[str, Any], name: str) -> dict[str, str]:
    """Return the key that gives a twin a separate run, for policies that sum over a run's resources."""
    return {"test:alone": name} if base.get("alone") else {}


def _beside(
    twin: Twin, entries: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Mapping[str, Any] | None]
) -> tuple[Twin, ...]:
    """Return the companions of a twin, each with its change; a change of null omits it."""
    return tuple(
        Twin(
            f"{twin.name}-{kind}",
            entry["type"],
            patches.changed(
                entry["props"], {entry.get("points", "bucket"): THIS, **(changes.get(kind) or {})}
            ),
            protect=False,
            component=False,
            context=twin.context,
        )
        for kind, entry in entries.items()
        if changes.get(kind, {}) is not None
    )


def _dated(data: Any) -> Any:
    def shift(match: re.Match[str]) -> str:
        return (TODAY + timedelta(days=int(match[1]))).isoformat()

    return json.loads(re.sub(r"\$days([+-]\d+)", shift, json.dumps(data)))


def evaluated(twin: Twin, policies: tuple[Policy, ...] = POLICIES) -> list[Finding]:
    """Evaluate a twin as the analyzer does, without the engine."""
    parameters = json.loads(twin.context.parameters)
    names = {policy.name for policy in policies}
    evaluator = PolicyEvaluator(
        policies, parameters={name: value for name, value in parameters.items() if name in names}
    )
    declared = {each.name: each for each in (twin, *twin.beside)}
    resources = [resource_of(each) for each in declared.values()]
    related_resources = RelatedResources(
        RelatedResource(each, depends_on=_depends_on(declared[each.name].props, resources[0].urn))
        for each in resources
    )
    alone = [finding for each in resources for finding in evaluator.evaluate(each)]
    return [*alone, *evaluator.evaluate_stack(related_resources)]


def _depends_on(props: Mapping[str, Any], this: str) -> dict[str, tuple[str, ...]]:
    """Return the dependencies of properties on other resources, as the engine sends them."""
    made = {THIS: (this,), THIS_AND_ANOTHER: (this, "urn:another")}
    marks = {name: mark for name, value in props.items() for mark in made if mentions(value, mark)}
    return {name: made[mark] for name, mark in marks.items()}


def mentions(value: Any, mark: str) -> bool:
    """Whether a property is the mark or contains it."""
    if isinstance(value, Mapping):
        return any(mentions(item, mark) for item in value.values())
    return value == mark or (isinstance(value, list) and any(mentions(item, mark) for item in value))


def resource_of(twin: Twin) -> Resource:
    """Return the twin as the analyzer passes it to the policies."""
    context = twin.context
    stack = EvaluatedStack(
        config={key: json.dumps(value) for key, value in json.loads(context.config).items()}, today=TODAY
    )
    props = PropertyBlock(with_unknown(twin.props, UNKNOWN))
    urn = f"urn:pulumi:test::guarded::{twin.type}::{twin.name}"
    return Resource(twin.type, twin.name, urn, props=props, stack=stack, protect=twin.protect)


def day(days_ago: int) -> date:
    """Return the date `days_ago` days before today."""
    return TODAY - timedelta(days=days_ago)


def with_unknown(value: Any, unknown: object) -> Any:
    """Return the value with `unknown` in place of each placeholder."""
    if isinstance(value, str) and value in (UNKNOWN_VALUE, THIS, THIS_AND_ANOTHER):
        return unknown
    if isinstance(value, Mapping):
        return {key: with_unknown(item, unknown) for key, item in value.items()}
    if isinstance(value, list):
        return [with_unknown(item, unknown) for item in value]
    return value
