"""Reports at the end of `up` which pools have fewer nodes than they should."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import catalog
from catalog import PurchaseKind
from infra.common import names
from infra.errors import TrainyardError
from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.cloud_validators import HOW_TO_BUY, purchase_of
from trainyard.stack.session import Session

if TYPE_CHECKING:
    from infra.clients.kubernetes import ApiServer

ASK_SECONDS = 10
LOOK = f"`kubectl get nodes -L {names.POOL_LABEL}` says which have"


def report_missing_capacity(session: Session) -> None:
    """Print a line for each pool that has fewer nodes than it is to have; nothing where all have come."""
    from trainyard.stack.access import api_from

    kubeconfig = session.engine.outputs(session.stack_name, show_secrets=True).get("kubeconfig")
    if kubeconfig is None:  # an existing cluster: its access and nodes are the user's
        return
    try:
        there = ready_nodes(api_from(str(kubeconfig), session.paths.engine / "tmp"))
    except TrainyardError as error:
        reason = error.problems[0].got
        lines = [f"the number of ready nodes could not be read ({reason}): {LOOK}"]
    else:
        lines = list(lacking(session.stack, there))
    for line in lines:
        session.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def ready_nodes(api: "ApiServer") -> Mapping[str, int]:
    """Count the ready nodes by pool. Raises TrainyardError as all requests do."""
    from trainyard.stack import nodes

    found = nodes.of_pools(api, seconds=ASK_SECONDS)
    return Counter(nodes.pool_of(each) for each in found if nodes.is_ready(each))


def lacking(stack: Stack, there: Mapping[str, int]) -> Iterator[str]:
    """Report how many nodes each pool lacks; provisioned pools lack none."""
    for pool in stack.pools:
        wanted, found = _wanted(pool), there.get(pool.name, 0)
        if found < wanted:
            yield f"pool {pool.name}: {found} of {wanted} nodes are ready{_why(pool)}; {LOOK}"


def _wanted(pool: NodePoolSpec) -> int:
    """Number of nodes that a pool keeps while no job waits."""
    if pool.provisioning:
        return 0
    return pool.min_nodes if pool.min_nodes is not None and pool.is_autoscaled else pool.num_nodes


def _why(pool: NodePoolSpec) -> str:
    sold = _sold(pool)
    if sold:
        ways = ", or ".join(HOW_TO_BUY[way] for way in sold)
        return f" ({pool.machine} is not sold as {purchase_of(pool)}: write {ways})"
    if pool.reservation and pool.reservation.starts:
        return f" (its capacity block is from {pool.reservation.starts} to {pool.reservation.ends})"
    return " (spot nodes start when the cloud has capacity)" if pool.is_spot else ""


def _sold(pool: NodePoolSpec) -> tuple[PurchaseKind, ...]:
    """Ways in which a machine is sold, if the pool buys it in none of them; else empty."""
    machine = catalog.find_machine(pool.machine) if pool.machine else None
    ways = machine.ways if machine else ()
    return () if purchase_of(pool) in ways else ways
