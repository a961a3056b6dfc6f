"""A subscription of Azure, known by its SDK: what resources are called, and what they tell of themselves."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from typing import Any

import yaml

from rehearsal.cloud import Made, Properties, Resource, Typed

CREDENTIALS = "azure-native:containerservice:listManagedClusterUserCredentials"
NAMES: Mapping[str, str] = {
    "Account": "accountName",
    "AgentPool": "agentPoolName",
    "AmlFilesystem": "amlFilesystemName",
    "BlobContainer": "containerName",
    "CapacityPool": "poolName",
    "CapacityPoolVolume": "volumeName",
    "DiskEncryptionSet": "diskEncryptionSetName",
    "FederatedIdentityCredential": "federatedIdentityCredentialResourceName",
    "Key": "keyName",
    "MaintenanceConfiguration": "configName",
    "ManagedCluster": "resourceName",
    "NatGateway": "natGatewayName",
    "PrivateDnsZoneGroup": "privateDnsZoneGroupName",
    "PrivateEndpoint": "privateEndpointName",
    "PrivateZone": "privateZoneName",
    "PublicIPAddress": "publicIpAddressName",
    "ResourceGroup": "resourceGroupName",
    "StorageAccount": "accountName",
    "Subnet": "subnetName",
    "UserAssignedIdentity": "resourceName",
    "Vault": "vaultName",
    "VirtualNetwork": "virtualNetworkName",
    "VirtualNetworkLink": "virtualNetworkLinkName",
    "Workspace": "workspaceName",
}
"""Kind → the input that says the resource's own name; its output is `name`."""
PARENTS = (
    *("accountName", "poolName", "privateEndpointName", "privateZoneName"),
    *("resourceName", "vaultName", "virtualNetworkName"),
)
"""Inputs that say the name of what a resource is in."""


class Subscription(Typed):
    """Azure by its SDK: inputs must fit its types, and answers have the form that its API gives them."""

    def __init__(self, subscription: str) -> None:
        super().__init__({})
        self._subscription = subscription

    def planned(self, resource: Resource) -> Properties:
        """Identities are asked for in a list, and told in a mapping."""
        identity = resource.inputs.get("identity")
        if not isinstance(identity, Mapping) or "userAssignedIdentities" not in identity:
            return {}
        asked = identity["userAssignedIdentities"]
        told = {each: {} for each in asked if isinstance(each, str)} if isinstance(asked, list) else asked
        return {"identity": {**identity, "userAssignedIdentities": told}}

    def create(self, resource: Resource) -> Made:
        _, module, kind = resource.token.split(":")
        name = self._name(resource)
        own = NAMES.get(kind)
        group = resource.inputs.get("resourceGroupName", "")
        place = f"/subscriptions/{self._subscription}/resourceGroups/{group}/providers/Microsoft.{module}"
        inside = [str(resource.inputs[key]) for key in PARENTS if key in resource.inputs and key != own]
        return Made("/".join([place, *inside, kind, name]), self._told(resource, name))

    def update(self, resource: Resource, inputs: Properties) -> Properties:
        changed = Resource(resource.token, resource.name, inputs)
        return {**self.planned(changed), "name": self._name(resource)}

    def answer(self, token: str, arguments: Properties) -> Properties:
        """What a call tells."""
        if token != CREDENTIALS:
            return super().answer(token, arguments)
        authority = base64.b64encode(b"rehearsal").decode()
        cluster = {"server": "https://rehearsal.invalid:443", "certificate-authority-data": authority}
        config = {"clusters": [{"name": arguments["resourceName"], "cluster": cluster}]}
        value = base64.b64encode(yaml.safe_dump(config).encode()).decode()
        return {"kubeconfigs": [{"name": "clusterUser", "value": value}]}

    def _name(self, resource: Resource) -> str:
        said = resource.inputs.get(NAMES.get(resource.token.rpartition(":")[2], ""))
        return str(said or resource.name)

    def _told(self, resource: Resource, name: str) -> dict[str, Any]:
        """What a resource has besides its inputs, as far as a program can build on it."""
        kind, inputs = resource.token.rpartition(":")[2], resource.inputs
        found: dict[str, Any] = {**self.planned(resource), "name": name}
        if kind == "UserAssignedIdentity":
            found |= {"clientId": _guid(name, "client"), "principalId": _guid(name, "principal")}
        if kind == "Key":
            version = uuid.uuid5(uuid.NAMESPACE_URL, name).hex
            vault = f"https://{inputs['vaultName']}.vault.azure.net/keys"
            found["keyUriWithVersion"] = f"{vault}/{name}/{version}"
        if kind == "ManagedCluster":
            found["oidcIssuerProfile"] = {"enabled": True, "issuerURL": "https://rehearsal.invalid/issuer/"}
        if kind == "AmlFilesystem":
            found["clientInfo"] = {"mgsAddress": "10.64.128.4"}
        if kind == "CapacityPool":
            found["name"] = f"{inputs['accountName']}/{name}"
        if kind == "CapacityPoolVolume":
            found["mountTargets"] = [{"ipAddress": "10.64.128.4"}]
        return found


def _guid(name: str, what: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{what}"))
