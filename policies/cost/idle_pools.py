"""Policy: autoscaled pools of accelerators scale to zero."""

from collections.abc import Iterator

from catalog import carries_accelerators
from policies.policy import EnforcementLevel, Policy, Resource, Severity, Violation
from policies.pools import TYPES, pool_of


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Report autoscaled accelerator pools whose minimum is above 0, so that idle nodes remain."""
    pool = pool_of(resource)
    keeps_nodes = pool.autoscaled and pool.minimum > 0
    if keeps_nodes and any(map(carries_accelerators, pool.machine_types)):
        yield Violation(pool.minimum_path, pool.minimum, "0")


POLICY = Policy(
    name="cost-idle-pools",
    title="Autoscaled accelerator pools scale to zero",
    reason="Idle accelerators are the largest avoidable cost of a training cluster.",
    remedy="Set the pool's minimum to 0.",
    types=TYPES,
    evaluate=evaluate,
    severity=Severity.MEDIUM,
    level=EnforcementLevel.ADVISORY,
    frameworks=("AWS Well-Architected COST09-BP03", "FinOps: Workload Optimization"),
)
