"""Fake values of the outputs that AWS computes and our program uses."""

import base64
from collections.abc import Mapping
from typing import Any

CERTIFICATE = base64.b64encode(b"ca").decode()


def identity(token: str, name: str) -> str:
    """Return the ID of a resource: `Subnet/training-private-us-east-2a`."""
    return f"{token.rpartition(':')[2]}/{name}"


def computed(token: str, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of a resource by its type, with readable names in place of generated ones."""
    kind = token.rpartition(":")[2]
    found: dict[str, Any] = {
        "arn": f"arn:{identity(token, name)}",
        **({"name": name} if "name" not in inputs else {}),
    }
    if token == "aws:eks/cluster:Cluster":
        found |= {
            "endpoint": "https://eks.example",
            "certificateAuthority": {"data": CERTIFICATE},
            "vpcConfig": {**inputs["vpcConfig"], "clusterSecurityGroupId": f"ClusterGroup/{name}"},
        }
    if token == "aws:eks/nodeGroup:NodeGroup":
        found["resources"] = [{"autoscalingGroups": [{"name": f"ScalingGroup/{name}"}]}]
    if kind == "LaunchTemplate":
        found["latestVersion"] = 1
    if kind == "LustreFileSystem":
        found |= {"dnsName": "lustre.example", "mountName": "abcdefgh"}
    if kind == "Key":
        found["keyId"] = f"Key/{name}"
    if kind == "Queue":
        found["url"] = identity(token, name)
    return found
