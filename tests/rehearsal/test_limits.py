"""Names and tags that a cloud would refuse are refused by its fake, at the preview."""

from typing import Any

import pytest

from rehearsal.cloud import RequestedResource, Typed
from rehearsal.wire import UNKNOWN

pytestmark = pytest.mark.clouds

AGENT_POOL = "azure-native:containerservice:AgentPool"
GROUP = "azure-native:resources:ResourceGroup"
NETWORK = "gcp:compute/network:Network"
BUCKET = "gcp:storage/bucket:Bucket"
VPC = "coreweave:index/networkingVpc:NetworkingVpc"


def refused(token: str, **inputs: Any) -> list[str]:
    return [path for path, _ in Typed().check(RequestedResource(token, "x", inputs))]


POOL = {"resourceGroupName": "g", "resourceName": "c"}


@pytest.mark.parametrize(
    ("token", "inputs", "paths"),
    [
        (AGENT_POOL, {**POOL, "agentPoolName": "spot12345678"}, []),
        (AGENT_POOL, {**POOL, "agentPoolName": "spot123456789"}, ["agentPoolName"]),
        (AGENT_POOL, {**POOL, "agentPoolName": "Spot"}, ["agentPoolName"]),
        (AGENT_POOL, {**POOL, "agentPoolName": UNKNOWN}, []),
        (GROUP, {"resourceGroupName": "g", "tags": {"owner": "x" * 256}}, []),
        (GROUP, {"resourceGroupName": "g", "tags": {"owner": "x" * 257}}, ["tags"]),
        (GROUP, {"resourceGroupName": "g", "tags": {"a/b": "c"}}, ["tags"]),
        (GROUP, {"resourceGroupName": "g", "tags": {f"k{n}": "v" for n in range(51)}}, ["tags"]),
        (NETWORK, {"name": "n" * 63}, []),
        (NETWORK, {"name": "n" * 64}, ["name"]),
        (BUCKET, {"name": "b-1", "location": "US", "labels": {"owner": "ml-platform"}}, []),
        (BUCKET, {"name": "b-1", "location": "US", "labels": {"Owner": "x"}}, ["labels"]),
        (BUCKET, {"name": "b-1", "location": "US", "labels": {"owner": "x y"}}, ["labels"]),
        (VPC, {"name": "v" * 30, "zone": "US-EAST-04A"}, []),
        (VPC, {"name": "v" * 31, "zone": "US-EAST-04A"}, ["name"]),
    ],
)
def test_limits_are_those_of_the_services(token: str, inputs: dict[str, Any], paths: list[str]) -> None:
    assert refused(token, **inputs) == paths
