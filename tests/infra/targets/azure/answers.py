"""Fake values of the outputs that Azure computes and our program uses."""

import base64
from collections.abc import Mapping
from typing import Any

import yaml

from tests.tables import table

CREDENTIALS = "azure-native:containerservice:listManagedClusterUserCredentials"
GROUP = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/training"
ISSUER = "https://westeurope.oic.prod-aks.azure.com/00000000-0000-0000-0000-000000000000/"
_OWN = table(__file__)
"""Type → the input with its name."""


def identity(token: str, name: str) -> str:
    """Return a readable ID in the form of Azure's."""
    _, module, kind = token.split(":")
    return f"{GROUP}/providers/Microsoft.{module}/{kind}/{name}"


def shaped(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return inputs in the form of Azure's answer: the list of requested identities becomes a mapping."""
    found = dict(inputs)
    identities = (found.get("identity") or {}).get("userAssignedIdentities")
    if isinstance(identities, list):
        found["identity"] = {
            **found["identity"],
            "userAssignedIdentities": {each: {} for each in identities if isinstance(each, str)},
        }
    return found


def computed(token: str, name: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return outputs of a resource by its type."""
    kind = token.rpartition(":")[2]
    found: dict[str, Any] = {"name": inputs[_OWN[kind]] if kind in _OWN else name}
    if kind == "UserAssignedIdentity":
        found |= {"clientId": f"{name}-client", "principalId": f"{name}-principal"}
    if kind == "Key":
        found["keyUriWithVersion"] = (
            f"https://{inputs['vaultName']}.vault.azure.net/keys/{inputs['keyName']}/0a1b2c"
        )
    if kind == "ManagedCluster":
        found["oidcIssuerProfile"] = {"enabled": True, "issuerURL": ISSUER}
    if kind == "AmlFilesystem":
        found["clientInfo"] = {
            "containerStorageInterface": {},
            "lustreVersion": "2.15",
            "mgsAddress": "10.64.128.4",
            "mountCommand": "",
        }
    if kind == "CapacityPoolVolume":
        found["mountTargets"] = [{"ipAddress": "10.64.128.4", "fileSystemId": name}]
    return found


def credentials(cluster: str) -> dict[str, Any]:
    """Return the kubeconfig that AKS gives to a member of its Entra groups."""
    config = {
        "clusters": [
            {
                "name": cluster,
                "cluster": {
                    "server": f"https://{cluster}-0a1b2c.privatelink.westeurope.azmk8s.io:443",
                    "certificate-authority-data": base64.b64encode(b"ca").decode(),
                },
            }
        ]
    }
    value = base64.b64encode(yaml.safe_dump(config).encode()).decode()
    return {"kubeconfigs": [{"name": "clusterUser", "value": value}]}
