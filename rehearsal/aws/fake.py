"""The AWS target's fake for rehearsals (`FAKE`): starts a moto account with the stack's existing resources,
resizes node groups in it, and returns which networks reach the EKS endpoint.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rehearsal.aws.account import MotoAccount
from rehearsal.aws.client import clients
from rehearsal.aws.existing import Existing
from rehearsal.cloud import CreatedResource, Own, Properties, RequestedResource
from rehearsal.fake import Fake, RunningFake, Stack
from rehearsal.reach import ANYWHERE, DeclaredControlPlane, Route

PACKAGE = "aws"
HTTPS = 443
SIZE = "trainyard:aws:NodeGroupSize"


@contextmanager
def _start(stack: Stack, folder: Path) -> Iterator[RunningFake]:
    region = stack["target"]["region"]
    with MotoAccount(region, _existing(stack)) as account:
        yield RunningFake(
            {PACKAGE: account, "trainyard": FakePlugin(account)}, clients(region, folder / PACKAGE)
        )


class FakePlugin(Own):
    """Fake of our own types; node group sizes are applied to the fake AWS."""

    def __init__(self, account: MotoAccount) -> None:
        super().__init__()
        self._account = account

    def create(self, resource: RequestedResource) -> CreatedResource:
        self._ask(resource, resource.inputs)
        return super().create(resource)

    def update(self, resource: RequestedResource, inputs: Properties) -> Properties:
        self._ask(resource, inputs)
        return super().update(resource, inputs)

    def _ask(self, resource: RequestedResource, inputs: Properties) -> None:
        if resource.token == SIZE:
            self._account.resize(resource, inputs)


def _existing(stack: Stack) -> Existing:
    """Return the resources that the stack file refers to as existing."""
    target = stack["target"]
    network = target["network"].get("existing")
    cluster = target.get("existing_cluster")
    filesystem = (target.get("filesystem") or {}).get("existing")
    groups = [each["security_group"] for each in (cluster, filesystem) if each]
    return Existing(
        vpc=network["id"] if network else "",
        subnets=network["subnets"] if network else {},
        groups=groups if network else [],
        cluster=cluster["name"] if cluster else "",
        bucket=stack["storage"]["object_store"]["bucket"] if target.get("existing_bucket") else "",
    )


def _networks(cluster: Properties) -> Sequence[str]:
    """Return who reaches the public endpoint: 0.0.0.0/0, where it is on and no network is named."""
    config = cluster["vpcConfig"]
    named: Sequence[str] = config.get("publicAccessCidrs") or ANYWHERE
    return named if config.get("endpointPublicAccess", True) else ()


def _admits(rule: Properties) -> bool:
    """Whether a rule lets addresses of a network connect to the API server."""
    return "cidrIpv4" in rule and rule.get("fromPort", 0) <= HTTPS <= rule.get("toPort", 0)


CONTROL_PLANE = DeclaredControlPlane(
    "aws:eks/cluster:Cluster",
    _networks,
    "target.access.public_cidrs",
    "EKS, API server endpoint: docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html",
    # The cluster security group admits members only: the same page, "Accessing a private only API server".
    Route(
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", _admits, "target.access.private_cidrs"
    ),
)
FAKE = Fake(_start, control_plane=CONTROL_PLANE)
