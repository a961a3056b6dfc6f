"""Policy: where a residency is declared, Karpenter node pools, and the provider and pools of a cluster, name
permitted regions, zones and countries only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.region import canonical
from policies.rules import independent, must_be_permitted
from policies.unknowns import PropertyBlock

LOCATION_LABELS = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Regions and zones that a provisioner may buy in, and those of a cluster's target and pools."""
    spec = resource.props.block("spec")
    for requirement in spec.blocks("template.spec.requirements"):
        if requirement.get("key") in LOCATION_LABELS and requirement.get("operator") == "In":
            yield from _permitted(resource, requirement, "values")
    stack = resource.props.block("stack")
    for block in (stack.block("target"), *stack.blocks("pools")):
        for name in ("region", "zones"):
            yield from _permitted(resource, block, name)
        # The zones of some clouds are their regions; on premises the country counts as the region.
        for name in ("zone", "country"):
            for location in block.texts(name):
                yield from must_be_permitted(resource, block.at(name), location.lower())


@independent
def _permitted(resource: Resource, block: PropertyBlock, name: str) -> Iterator[Violation]:
    for location in block.texts(name):
        if location.isdigit():
            continue  # Azure numbers zones, and a separate property has the region
        yield from must_be_permitted(resource, block.at(name), _region(location))


def _region(location: str) -> str:
    """A zone of AWS (`eu-west-1a`), Google Cloud (`europe-west4-a`) or AKS (`westeurope-1`) as its region."""
    name = canonical(location)
    if re.fullmatch(r"[a-z0-9]+-\d", name):
        return name[:-2]
    return name[:-1] if name[-1:].isalpha() and name[-2:-1].isdigit() else name


POLICY = Policy(
    name="residency-spot-targets",
    title="Spot fallback and failover stay in the permitted regions",
    reason="When spot runs out, a fallback may move a job and its data to another region.",
    remedy="Name permitted regions and zones only.",
    types=("kubernetes:karpenter.sh/*:NodePool", "trainyard:infra:*Cluster"),
    evaluate=evaluate,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 CP-7"),
)
