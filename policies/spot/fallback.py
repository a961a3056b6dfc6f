"""Policy: each queue with a spot pool also has an on-demand or reserved pool, and each spot pool with
accelerators has a queue.
"""

from collections.abc import Iterator

from policies.capacity import is_accelerated
from policies.policy import Policy, Resource, Violation

LASTING = ("on-demand", "reserved")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Each queue with a flavor on a spot pool has one on an on-demand or reserved pool too.

    A spot pool of accelerators without a queue has no way to a fallback at all.
    """
    spec = resource.props.block("stack")
    capacity = {pool.get("name"): pool.get("capacity") for pool in spec.blocks("pools")}
    used: set[str] = set()
    for queue in spec.blocks("queues"):
        pools = [flavor.get("pool") for flavor in queue.blocks("flavors")]
        used.update(pools)
        kinds = {capacity.get(pool) for pool in pools}
        if "spot" in kinds and not kinds.intersection(LASTING):
            yield Violation(
                queue.at("flavors"), ", ".join(pools), "an on-demand or reserved pool beside the spot ones"
            )
    for pool in (pool.get("name") for pool in spec.blocks("pools") if is_accelerated(pool)):
        if capacity[pool] == "spot" and pool not in used:
            yield Violation(spec.at("queues"), f"none for spot pool {pool}", "a queue with it and a fallback")


POLICY = Policy(
    name="spot-fallback",
    title="Spot pools have an on-demand fallback",
    reason="Spot capacity can be unavailable for days. A job whose queue has no other pool waits for it.",
    remedy="Add a flavor of an on-demand or reserved pool to the queue.",
    types=("trainyard:infra:*Cluster",),
    evaluate=evaluate,
    frameworks=("AWS Well-Architected REL11-BP04", "NIST SP 800-53 CP-10"),
)
