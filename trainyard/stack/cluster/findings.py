"""`examine`: asks a cluster that exists everything at once, and returns all that does not fit the stack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine.provider.cluster_claim import claim_of
from engine.provider.cluster_claim import taken as taken_by
from infra.clients.kubernetes import ApiServer
from infra.errors import InputError, Problem
from infra.stackfile import Stack
from trainyard.stack.cluster import names_taken, nodes, operators
from trainyard.stack.cluster.seen import ClusterSeen, look

if TYPE_CHECKING:
    from trainyard.stack.session import Session

CHECKS = (
    nodes.version_fits,
    nodes.distribution_fits,
    operators.not_served,
    operators.kueue_differs,
    operators.controllers_elsewhere,
    nodes.nodes_fit,
)


@dataclass(frozen=True)
class ClusterFindings:
    """What does not fit, and what is only to be known."""

    seen: ClusterSeen
    problems: tuple[Problem, ...]
    note: str = ""


def check_cluster(session: Session, announced: Iterable[Mapping[str, Any]]) -> None:
    """Ask a cluster that exists whether the stack can come there.

    Raises:
        InputError: with all that does not fit; nothing was created.
        TrainyardError: no answer, or none to this user.
    """
    found = examine(session.api, session.stack, mark_of(session), announced)
    if found.note:
        session.console.print(f"[yellow]note[/]  {found.note}", highlight=False, soft_wrap=True)
    if found.problems:
        raise InputError(found.problems)


def mark_of(session: Session) -> str:
    """The mark of the stack's objects, as `infra.common.kubernetes_objects.owner` writes it."""
    return f"{session.engine.project}/{session.stack_name}"


def examine(
    api: ApiServer, stack: Stack, owner: str, announced: Iterable[Mapping[str, Any]]
) -> ClusterFindings:
    """Look at the cluster, changing nothing.

    Args:
        api: the cluster's API server.
        stack: the stack that is to come there.
        owner: the stack's mark, PROJECT/STACK.
        announced: states of the resources that an `up` would create, from a preview.

    Raises:
        TrainyardError: no answer, or none to this user.
    """
    seen = look(api, operators.definitions_asked())
    problems: list[Problem] = []
    claim = claim_of(api)
    if claim is not None and claim.get("owner") != owner:
        problems.append(taken_by(claim))
    there = dict(operators.already_there(stack, seen, owner))
    problems += there.values()
    for check in CHECKS:
        problems += check(stack, seen)
    found = names_taken.taken(api, seen, names_taken.planned(announced), owner)
    problems += names_taken.problems(found, operators.keys(), there)
    return ClusterFindings(seen, tuple(problems), nodes.untested_version(stack, seen))
