"""Policy: the checkpoint time that a spot pool with accelerators declares fits into the preemption notice."""

from collections.abc import Iterator

import catalog
from policies.capacity import is_accelerated
from policies.policy import Policy, Resource, Violation, parameter
from policies.unknowns import PropertyBlock


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Compare the time that each spot pool declares to the target's preemption notice.

    A pool that declares none is measured by its jobs, which warn of slower checkpoints. Pools of simulated
    accelerators are exempt: their lost work costs nothing.
    """
    stack = resource.props.block("stack")
    notice = resource.parameters["notice_seconds"].get(stack.get("target.kind"), 0)
    allowed = notice * (1 - resource.parameters["margin"])
    for index, pool in enumerate(stack.blocks("pools")):
        seconds = pool.get("checkpoint_seconds")
        if seconds is not None and _is_real_spot(pool) and seconds > allowed:
            text = f"{allowed:g} s at most ({notice:g} s of notice with a margin)"
            yield Violation(f"stack.pools[{index}].checkpoint_seconds", f"{seconds:g} s", text)


def _is_real_spot(pool: PropertyBlock) -> bool:
    return bool(pool.get("capacity") == "spot" and is_accelerated(pool))


POLICY = Policy(
    name="spot-checkpoint-time",
    title="A checkpoint completes before the node is terminated",
    reason="With a notice shorter than a checkpoint every reclaim loses all steps since the last one.",
    remedy="Make checkpoints faster, use on-demand nodes, or ask for a longer notice.",
    types=("trainyard:infra:*Cluster",),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-10",),
    parameters={
        "notice_seconds": parameter(
            "object",
            {name: found.usable_seconds for name, found in catalog.notices().items()},
            "Notice of each target; GKE's can be extended.",
            additionalProperties={"type": "number"},
        ),
        "margin": parameter(
            "number",
            catalog.NOTICE_MARGIN,
            "Share of the notice that must stay free.",
            minimum=0,
            exclusiveMaximum=1,
        ),
    },
)
