"""`examine`: asks a cluster that exists everything at once, and returns all that does not fit the stack."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from engine.provider.cluster_claim import claim_of, state_at
from engine.provider.cluster_claim import taken as taken_by
from infra.clients.kubernetes import ApiServer
from infra.errors import InputError, Problem
from infra.stackfile import Stack
from trainyard.stack.access import connect_to
from trainyard.stack.cluster import names_taken, nodes, operators, pods
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
    notes: tuple[str, ...] = ()


def check_cluster(session: "Session", announced: Sequence[Mapping[str, Any]]) -> ApiServer:
    """Ask a cluster that exists whether the stack can come there; return its API server.

    Raises:
        InputError: with all that does not fit; nothing was created.
        TrainyardError: no answer, or none to this user.
    """
    api, found = ask(session, announced)
    for note in found.notes:
        session.console.print(f"[yellow]note[/]  {escape(note)}", highlight=False, soft_wrap=True)
    if found.problems:
        raise InputError(found.problems)
    return api


def ask(session: "Session", announced: Sequence[Mapping[str, Any]]) -> tuple[ApiServer, ClusterFindings]:
    """Look at the stack's cluster; see `examine`."""
    api, state = connect_to(session, announced), state_at(session.engine.backend_url)
    return api, examine(api, session.stack, mark_of(session), announced, state)


def mark_of(session: "Session") -> str:
    """The mark of the stack's objects, as `infra.common.kubernetes_objects.owner` writes it."""
    return f"{session.engine.project}/{session.stack_name}"


def examine(
    api: ApiServer, stack: Stack, owner: str, announced: Sequence[Mapping[str, Any]], state: str = ""
) -> ClusterFindings:
    """Look at the cluster, changing nothing.

    Args:
        api: the cluster's API server.
        stack: the stack that is to come there.
        owner: the stack's mark, PROJECT/STACK.
        announced: states of the stack's resources; `is_known` marks those that an `up` would not create.
        state: where the stack's state is, as `state_at` has it.

    Raises:
        TrainyardError: no answer, or none to this user.
    """
    seen = look(api, operators.definitions_asked())
    problems: list[Problem] = []
    claim = claim_of(api)
    if claim is not None and not _is_own(claim, owner, announced, state):
        problems.append(taken_by(claim))
    there = dict(operators.already_there(api, stack, seen, owner))
    problems += there.values()
    for check in CHECKS:
        problems += check(stack, seen)
    found = names_taken.taken(api, seen, names_taken.planned(announced), owner)
    used = getattr(stack.target, "existing_objects", None) if announced else None
    problems += names_taken.problems(found, operators.keys(), there, used)
    refused, notes = pods.try_pods(api, stack, announced)
    return ClusterFindings(
        seen, (*problems, *refused), tuple(filter(None, [nodes.untested_version(stack, seen), *notes]))
    )


def _is_own(claim: Mapping[str, Any], owner: str, announced: Sequence[Mapping[str, Any]], state: str) -> bool:
    """Whether the claim is this stack's: in its state, or not known to be of another of the same name."""
    in_state = any(each.get("is_known") for each in announced if each["type"].endswith(":ClusterClaim"))
    is_there = not announced or in_state or (claim.get("state") or state) == state
    return is_there and claim.get("owner") == owner
