"""The corpus: compliant resources, and cases that each break one property of one of them.

Every case is a pair, the compliant resource and its twin, evaluated with the same configuration unless the
one thing that differs is a piece of configuration.
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

from policies.config import EvaluatedStack, Measurement
from policies.evaluation import MAKE_KNOWN, Finding, PolicyEvaluator
from policies.pack import POLICIES
from policies.policy import Policy, Resource
from policies.related_resources import RelatedResource, RelatedResources
from policies.unknowns import UNKNOWN, PropertyBlock
from tests import patches

FOLDER = Path(__file__).parent / "cases"
TODAY = datetime.now(UTC).date()

CONFIG: Mapping[str, Any] = {
    "trainyard:residency": {"allowed": ["eu", "eu-*", "europe-*", "westeurope", "swedencentral"]},
}
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "residency-bucket-replication": {"inside": ["arn:aws:s3:::known-copy"]},
    "residency-log-sinks": {"inside": ["arn:aws:s3:::known-logs", "/subscriptions/s/known"]},
    "residency-filesystem-links": {"inside": ["s3://known-data"]},
    "kubernetes-hidden-objects": {"allowed": ["reviewed-*"]},
}
UNKNOWN_VALUE, THIS, THIS_AND_ANOTHER = "$unknown", "$this", "$this-and-another"
"""Stand for an output of another resource, of the one that a companion is beside, and of both together."""
MEASUREMENT: Mapping[str, Any] = {"seconds": 60, "days_ago": 10}
"""Of a checkpoint, beside the stack."""


@dataclass(frozen=True)
class World:
    """What surrounds a resource: what is not a property of it."""

    config: str
    parameters: str
    measurement: str

    @classmethod
    def of(cls, config: Mapping[str, Any], parameters: Mapping[str, Any], measurement: object) -> World:
        """Texts, so that equal worlds are equal and can share one run of the engine."""
        return cls(*(json.dumps(part, sort_keys=True) for part in (config, parameters, measurement)))


@dataclass(frozen=True)
class Twin:
    """One resource of a pair, and the stack that it is evaluated in."""

    name: str
    type: str
    props: Mapping[str, Any]
    protect: bool
    component: bool
    world: World
    beside: tuple[Twin, ...] = ()
    """What is declared with it: `$this` in their properties is this resource's id."""


@dataclass(frozen=True)
class Case:
    """A pair: the clean twin, and the one that violates `policy`."""

    policy: str
    message: str
    """The violation, word for word, without the remedy."""
    also: frozenset[str]
    """Other policies that need the same property."""
    clean: Twin
    violating: Twin


@cache
def load() -> list[Case]:
    """All cases, named after policy, resource and their number in the file."""
    compliant = read(FOLDER / "compliant.yaml")
    files = sorted(file for file in FOLDER.glob("*.yaml") if file.stem != "compliant")
    return [
        _case(f"{file.stem}-{index}-{entry['resource']}", entry, compliant)
        for file in files
        for index, entry in enumerate(read(file))
    ]


@cache
def read(file: Path) -> Any:
    """A file of the corpus as data."""
    return yaml.load(file.read_text(), Loader=yaml.CSafeLoader)


def _case(name: str, entry: Mapping[str, Any], compliant: Mapping[str, Mapping[str, Any]]) -> Case:
    base = _dated(json.loads(json.dumps(compliant[entry["resource"]]).replace("$name", f"{name}-clean")))
    entry = _dated(entry)
    config = {**CONFIG, **base.get("config", {})}
    parameters = {**PARAMETERS, **base.get("parameters", {})}
    measurement = MEASUREMENT
    clean = Twin(
        name=f"{name}-clean",
        type=entry.get("as", base["type"]),
        props=base["props"],
        protect=base.get("protect", False),
        component=base.get("component", False),
        world=World.of({**config, **_alone(base, f"{name}-clean")}, parameters, measurement),
    )
    beside = {kind: compliant[kind] for kind in base.get("beside", ())}
    clean = replace(clean, beside=_beside(clean, beside, {}))
    changed = {
        key: value for key, value in {**config, **entry.get("set_config", {})}.items() if value is not None
    }
    changed |= _alone(base, f"{name}-violates")
    world = World.of(changed, parameters, entry.get("set_measurement", measurement))
    violating = replace(
        clean,
        name=f"{name}-violates",
        props=patches.changed(base["props"], entry.get("set", {})),
        protect=entry.get("set_protect", clean.protect),
        world=world,
    )
    violating = replace(violating, beside=_beside(violating, beside, entry.get("set_beside", {})))
    message = entry["message"].replace("$make-known", MAKE_KNOWN)
    return Case(entry["policy"], message, frozenset(entry.get("also", ())), clean, violating)


def _alone(base: Mapping[str, Any], name: str) -> dict[str, str]:
    """What gives a twin a separate run, where the policy adds up what a run declares."""
    return {"test:alone": name} if base.get("alone") else {}


def _beside(
    twin: Twin, entries: Mapping[str, Mapping[str, Any]], changes: Mapping[str, Mapping[str, Any] | None]
) -> tuple[Twin, ...]:
    """Companions of a twin, each with its change; a change of null leaves it out."""
    return tuple(
        Twin(
            f"{twin.name}-{kind}",
            entry["type"],
            patches.changed(
                entry["props"], {entry.get("points", "bucket"): THIS, **(changes.get(kind) or {})}
            ),
            protect=False,
            component=False,
            world=twin.world,
        )
        for kind, entry in entries.items()
        if changes.get(kind, {}) is not None
    )


def _dated(data: Any) -> Any:
    def shift(match: re.Match[str]) -> str:
        return (TODAY + timedelta(days=int(match[1]))).isoformat()

    return json.loads(re.sub(r"\$days([+-]\d+)", shift, json.dumps(data)))


def evaluated(twin: Twin, policies: tuple[Policy, ...] = POLICIES) -> list[Finding]:
    """Evaluate a twin without the engine, as the analyzer would."""
    parameters = json.loads(twin.world.parameters)
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
    """The engine's dependencies of properties that come from other resources; none for `$unknown`."""
    made = {THIS: (this,), THIS_AND_ANOTHER: (this, "urn:another")}
    marks = {name: mark for name, value in props.items() for mark in made if mentions(value, mark)}
    return {name: made[mark] for name, mark in marks.items()}


def mentions(value: Any, mark: str) -> bool:
    """Whether a property is the mark, or has it somewhere inside."""
    if isinstance(value, Mapping):
        return any(mentions(item, mark) for item in value.values())
    return value == mark or (isinstance(value, list) and any(mentions(item, mark) for item in value))


def resource_of(twin: Twin) -> Resource:
    """The twin as the analyzer hands it to the policies."""
    world = twin.world
    stack = EvaluatedStack(
        config={key: json.dumps(value) for key, value in json.loads(world.config).items()},
        today=TODAY,
        measurement=measurement(world),
        measurement_file="checkpoint.test.json",
    )
    props = PropertyBlock(with_unknown(twin.props, UNKNOWN))
    urn = f"urn:pulumi:test::guarded::{twin.type}::{twin.name}"
    return Resource(twin.type, twin.name, urn, props=props, stack=stack, protect=twin.protect)


def measurement(world: World) -> Measurement | None:
    """The measurement that lies beside the stack in this world."""
    data = json.loads(world.measurement)
    if data is None:
        return None
    return Measurement(data["seconds"], day(data["days_ago"]), data.get("assumed", False))


def day(days_ago: int) -> date:
    """The date so many days ago."""
    return TODAY - timedelta(days=days_ago)


def with_unknown(value: Any, unknown: object) -> Any:
    """The value with `unknown` in place of every `$unknown`, `$this` and what is made of it."""
    if isinstance(value, str) and value in (UNKNOWN_VALUE, THIS, THIS_AND_ANOTHER):
        return unknown
    if isinstance(value, Mapping):
        return {key: with_unknown(item, unknown) for key, item in value.items()}
    if isinstance(value, list):
        return [with_unknown(item, unknown) for item in value]
    return value
