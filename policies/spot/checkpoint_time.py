"""Policy: a stack with spot accelerators has a recent checkpoint time (measured, or assumed for a first `up`)
that is shorter than the preemption notice less a margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import catalog
from policies.capacity import is_accelerated
from policies.config import Measurement
from policies.policy import Policy, Resource, Violation
from policies.unknowns import PropertyBlock


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Compare the measured time, with its margin, to the target's preemption notice.

    Pools of simulated accelerators are exempt: their lost work costs nothing.
    """
    stack = resource.props.block("stack")
    if not any(_is_real_spot(pool) for pool in stack.blocks("pools")):
        return
    measurement = resource.stack.measurement
    if measurement is None:
        yield Violation("checkpoint time", "no measurement", f"one in {resource.stack.measurement_file}")
        return
    yield from _timely(resource, measurement)
    notice = resource.parameters["notice_seconds"].get(stack.get("target.kind"), 0)
    allowed = notice * (1 - resource.parameters["margin"])
    if measurement.seconds > allowed:
        text = f"{allowed:g} s at most ({notice:g} s of notice with a margin)"
        yield Violation("checkpoint time", f"{measurement.seconds:g} s", text)


def _timely(resource: Resource, measurement: Measurement) -> Iterator[Violation]:
    found, limit = ("assumed", "assumption_days") if measurement.is_assumed else ("measured", "maximum_days")
    oldest = resource.stack.today - timedelta(days=resource.parameters[limit])
    if measurement.measured < oldest:
        allowed = "a measured time" if measurement.is_assumed else f"{oldest} or later"
        yield Violation("checkpoint time", f"{found} on {measurement.measured}", allowed)


def _is_real_spot(pool: PropertyBlock) -> bool:
    return bool(pool.get("capacity") == "spot" and is_accelerated(pool))


POLICY = Policy(
    name="spot-checkpoint-time",
    title="A checkpoint completes before the node is terminated",
    reason="With a notice shorter than a checkpoint every reclaim loses all steps since the last one.",
    remedy="Run `trainyard measure` on this stack (before its first `up` with `--assume SECONDS`, in a"
    " rehearsal with `--assume-checkpoint SECONDS`), make checkpoints faster, or ask for a longer notice.",
    types=("trainyard:infra:*Cluster",),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-10",),
    parameters={
        "notice_seconds": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "default": {name: found.usable_seconds for name, found in catalog.notices().items()},
            "description": "Notice of each target; GKE's can be extended.",
        },
        "margin": {
            "type": "number",
            "minimum": 0,
            "exclusiveMaximum": 1,
            "default": catalog.NOTICE_MARGIN,
            "description": "Share of the notice that must stay free.",
        },
        "maximum_days": {
            "type": "integer",
            "minimum": 1,
            "default": 90,
            "description": "Age in days beyond which a measurement does not count.",
        },
        "assumption_days": {
            "type": "integer",
            "minimum": 0,
            "default": 14,
            "description": "Days for which an assumption counts, so that a first `up` can be measured.",
        },
    },
)
