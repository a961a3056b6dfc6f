"""Policy: each Kueue resource group with a spot flavor also has a flavor that is not spot."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Violation, texts

NEGATED = re.compile(r"(non|no|not)-?spot")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Each resource group with a spot flavor has a flavor that is not spot."""
    patterns = resource.parameters["spot_flavors"]
    for group in resource.props.block("spec").blocks("resourceGroups"):
        names = [flavor.get("name") for flavor in group.blocks("flavors")]
        if names and all(_is_spot(name, patterns) for name in names):
            yield Violation(group.at("flavors"), ", ".join(names), "an on-demand flavor beside the spot ones")


def _is_spot(name: str, patterns: list[str]) -> bool:
    return not NEGATED.match(name) and any(fnmatchcase(name, pattern) for pattern in patterns)


POLICY = Policy(
    name="spot-queue-fallback",
    title="Queues with a spot flavor have an on-demand flavor",
    reason="A job in a queue with spot flavors only waits as long as there is no spot capacity.",
    remedy="Add a flavor of on-demand or reserved nodes to the resource group.",
    types=("kubernetes:kueue.x-k8s.io/*:ClusterQueue",),
    evaluate=evaluate,
    frameworks=("AWS Well-Architected REL11-BP04", "NIST SP 800-53 CP-10"),
    parameters={
        "spot_flavors": texts(
            "Patterns of the names of flavors that are spot.",
            "spot",
            "spot-*",
            "*-spot",
            "*-spot-*",
            "preemptible*",
        )
    },
)
