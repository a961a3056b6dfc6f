"""The resources of one team, for `up --team`, which looks at these and at no others of the cluster."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from infra.common import names
from infra.errors import InputError, Problem
from infra.stackfile import Stack, parse
from infra.stackfile.queue import QueueSpec
from infra.targets.deploying import DeclaredResource
from trainyard.stack.data import last_stack
from trainyard.stack.preview import declared, identity_of, prepared
from trainyard.stack.session import Session

_ALWAYS = (
    "**::pulumi:pulumi:Stack::*",  # has the outputs
    # The accounts of the embedded store depend on its key, which is unknown without an engine.
    f"**:Secret::{names.STORAGE_NAMESPACE}/{names.OBJECT_STORE_ACCOUNTS}",
)


def team_targets(session: Session) -> list[str]:
    """Return patterns of the engine's `--target` for all that the session's team has, or shares by a list.

    These resources differ between the program and the program without the team, as the files are now or as
    they were at the last `up`.

    Raises InputError where neither has such a team, or the stack is not up.
    """
    engine, name = session.engine, session.stack_name
    resources = engine.resources(name) if engine.exists(name) else []
    before = last_stack(resources)
    stacks = [session.stack, *([parse(_without_nulls(before))] if before else [])]
    known = sorted({each.name for stack in stacks for each in stack.teams})
    if not before or session.team not in known:
        got = session.team if before else "a stack that is not up"
        raise InputError([Problem("--team", got, ", ".join(known), "name one of these, or leave --team out")])
    artifacts = prepared(session)
    present = _by_urn(declared(session.stack, artifacts))
    found: dict[str, DeclaredResource] = {}
    for stack in stacks:
        if any(each.name == session.team for each in stack.teams):
            with_it = present if stack is session.stack else _by_urn(declared(stack, artifacts))
            without = _by_urn(declared(_without(stack, session.team), artifacts))
            found |= {
                urn: each
                for urn, each in (without | with_it).items()
                if _inputs(with_it.get(urn)) != _inputs(without.get(urn))
            }
    gone = {identity_of(urn) for urn in found.keys() - present.keys()}
    needed = _needed_by_others(resources, gone)
    chosen = [each for each in found.values() if identity_of(each.urn) not in needed]
    return sorted({*_ALWAYS, *(f"**{each.type}::{each.name}" for each in chosen)})


def _by_urn(resources: Sequence[DeclaredResource]) -> dict[str, DeclaredResource]:
    return {each.urn: each for each in resources}


def _inputs(resource: DeclaredResource | None) -> str:
    """Return the inputs as text, in which all unknown values are equal; empty for no resource."""
    return json.dumps(resource.inputs, sort_keys=True, default=lambda _: None) if resource else ""


def _without(stack: Stack, name: str) -> Stack:
    """Return the stack without a team; queues that have what the teams leave get another quota."""
    teams = [each for each in stack.teams if each.name != name]
    (own,) = (each.queue if each.quota is not None else "" for each in stack.teams if each.name == name)
    used = {queue for each in teams for queue in each.queues}
    of_teams = {each.queue for each in stack.teams if each.quota is not None}
    cohorts = {each.cohort for each in stack.queues if each.name == own}
    queues = [
        _with_another_quota(each) if each.cohort in cohorts and each.name not in of_teams else each
        for each in stack.queues
        if each.name != own or each.name in used
    ]
    return stack.model_copy(update={"teams": tuple(teams), "queues": tuple(queues)})


def _with_another_quota(queue: QueueSpec) -> QueueSpec:
    flavors = [each.model_copy(update={"quota": each.quota + 1}) for each in queue.flavors]
    return queue.model_copy(update={"flavors": tuple(flavors)})


def _needed_by_others(
    resources: Sequence[Mapping[str, Any]], gone: set[tuple[str, str]]
) -> set[tuple[str, str]]:
    """Return what would be deleted, although resources depend on it that are not: the last folders' Job."""
    others = [each for each in resources if identity_of(each["urn"]) not in gone]
    return gone & {identity_of(urn) for each in others for urn in each.get("dependencies") or ()}


def _without_nulls(value: Any) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
