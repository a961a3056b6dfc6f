"""Policy: where a residency is declared, VPC endpoints and peerings connect to permitted regions only."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_be_permitted

REGION_PROPERTIES = ("serviceRegion", "peerRegion")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Endpoints of services, and peers, in other regions."""
    for name in REGION_PROPERTIES:
        if region := resource.props.get(name):
            yield from must_be_permitted(resource, name, region)
    parts = resource.props.get("serviceName", "").split(".")
    if parts[:2] == ["com", "amazonaws"] and len(parts) > 3:
        yield from must_be_permitted(resource, "serviceName", parts[2])


POLICY = Policy(
    name="residency-network-links",
    title="Endpoints and peerings stay in the permitted regions",
    reason="A private endpoint into another region bypasses every egress rule.",
    remedy="Use the endpoint of a permitted region, or remove the peering.",
    types=(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "aws:ec2/vpcPeeringConnection:VpcPeeringConnection",
        "aws:ec2transitgateway/peeringAttachment:PeeringAttachment",
    ),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 SC-7", "NIST SP 800-53 SA-9(5)"),
)
