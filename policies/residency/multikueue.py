"""Policy: where a residency is declared, a MultiKueue worker cluster carries the label of a permitted
region.
"""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_be_permitted

REGION_LABEL = "topology.kubernetes.io/region"


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A worker cluster must carry the label of a permitted region."""
    if not resource.stack.residency.is_declared:
        return
    labels = resource.props.block("metadata.labels")
    path = f"{labels.path}[{REGION_LABEL}]"
    region = labels.entry(REGION_LABEL)
    if region is None:
        yield Violation(path, "nothing", str(resource.stack.residency))
    else:
        yield from must_be_permitted(resource, path, region)


POLICY = Policy(
    name="residency-multikueue",
    title="MultiKueue workers are in permitted regions",
    reason="MultiKueue sends a job with its secrets to another cluster, whose object names no region.",
    remedy="Label the MultiKueueCluster with its region, and use workers of permitted regions.",
    types=("kubernetes:kueue.x-k8s.io/*:MultiKueueCluster",),
    evaluate=evaluate,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)"),
)
