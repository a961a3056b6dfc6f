"""Policy: a security group for EFA, recognised by its resource's name, allows all traffic from and to
itself.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Violation, texts


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A group that is named for EFA lets all protocols in from itself and out to itself."""
    if not any(fnmatchcase(resource.name.lower(), pattern) for pattern in resource.parameters["groups"]):
        return
    for direction in ("ingress", "egress"):
        rules = resource.props.blocks(direction)
        if not any(rule.get("self") and str(rule.get("protocol")) == "-1" for rule in rules):
            yield Violation(direction, "no rule for itself", "a rule with self: true and protocol -1")


POLICY = Policy(
    name="fabric-efa-security-groups",
    title="Security groups of EFA allow themselves",
    reason="EFA does not use TCP: it needs a rule for all protocols in both directions.",
    remedy="Add ingress and egress rules with `self: true` and protocol -1.",
    types=("aws:ec2/securityGroup:SecurityGroup",),
    evaluate=evaluate,
    frameworks=("AWS EFA user guide: security groups",),
    parameters={
        "groups": texts(
            "Patterns of logical names of groups that carry EFA and hold their rules inline.",
            "efa",
            "efa-*",
            "*-efa",
            "*-efa-*",
        )
    },
)
