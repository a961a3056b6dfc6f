"""Fake Azure subscription: returns IDs, outputs and credentials as Azure does, and answers the requests of
`trainyard stack import`.
"""

import base64
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rehearsal.azure.resource_paths import collection, identity, name_property, resource_paths
from rehearsal.cloud import CreatedResource, Properties, RequestedResource, Typed
from rehearsal.leaks import SECRET
from rehearsal.store import ResourceStore, StoredResource
from rehearsal.tables import table

CREDENTIALS = "azure-native:containerservice:listManagedClusterUserCredentials"


class AzureSubscription(Typed):
    """A fake Azure subscription, behind the fake provider."""

    def __init__(self, subscription: str) -> None:
        super().__init__({}, table(__package__, "replacements"))
        self._subscription = subscription

    def planned_outputs(self, resource: RequestedResource) -> Properties:
        """Convert identities: the request has a list, the response a mapping."""
        identity = resource.inputs.get("identity")
        if not isinstance(identity, Mapping) or "userAssignedIdentities" not in identity:
            return {}
        asked = identity["userAssignedIdentities"]
        identities = (
            {each: {} for each in asked if isinstance(each, str)} if isinstance(asked, list) else asked
        )
        return {"identity": {**identity, "userAssignedIdentities": identities}}

    def autoname(self, token: str) -> str | None:
        """Return the property whose name the provider generates, such as that of a role assignment."""
        return name_property(token) if resource_paths().get(token, {}).get("made_up") else None

    def create(self, resource: RequestedResource) -> CreatedResource:
        name = self._name(resource)
        found = identity(resource.token, {"subscription": self._subscription, **resource.inputs})
        group = resource.inputs.get("resourceGroupName", "")
        path = f"/subscriptions/{self._subscription}/resourceGroups/{group}/{resource.token}/{name}"
        return CreatedResource(found or path, self._known(resource, name))

    def update(self, resource: RequestedResource, inputs: Properties) -> Properties:
        changed = RequestedResource(resource.token, resource.name, inputs)
        return {**self.planned_outputs(changed), "name": self._name(resource)}

    def answer(self, token: str, arguments: Properties) -> Properties:
        """Answer a function call, such as the one for a cluster's credentials."""
        if token != CREDENTIALS:
            return super().answer(token, arguments)
        authority = base64.b64encode(b"rehearsal").decode()
        cluster = {"server": "https://rehearsal.invalid:443", "certificate-authority-data": authority}
        name = arguments["resourceName"]
        user = {"token": f"{SECRET}-token", "client-key-data": base64.b64encode(SECRET.encode()).decode()}
        config = {"clusters": [{"name": name, "cluster": cluster}], "users": [{"name": name, "user": user}]}
        value = base64.b64encode(yaml.safe_dump(config).encode()).decode()
        return {"kubeconfigs": [{"name": "clusterUser", "value": value}]}

    def _name(self, resource: RequestedResource) -> str:
        key = name_property(resource.token) if resource.token in resource_paths() else ""
        return str(resource.inputs.get(key) or resource.name)

    def _known(self, resource: RequestedResource, name: str) -> dict[str, Any]:
        """Return the outputs that other resources of a stack use."""
        kind, inputs = resource.token.rpartition(":")[2], resource.inputs
        found: dict[str, Any] = {**self.planned_outputs(resource), "name": name}
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


class AzureAnswers:
    """Answers GET requests from the resources that the fake has created: one by its ID, or a list."""

    def __init__(self, folder: Path, subscription: str) -> None:
        self._folder = folder
        self._known = {"subscription": subscription}

    def __call__(self, path: str, parameters: Mapping[str, str]) -> dict[str, Any] | None:
        if not parameters.get("api-version"):
            raise ValueError(f"GET {path}: MissingApiVersionParameter")  # as Azure refuses it
        listed: list[dict[str, Any]] = []
        for stored in ResourceStore(self._folder):
            if stored.id == path:
                return _answered(stored)
            if (
                stored.token in resource_paths()
                and collection(stored.token, {**self._known, **stored.outputs}) == path
            ):
                listed.append(_answered(stored))
        return {"value": listed} if listed else None


def _answered(stored: StoredResource) -> dict[str, Any]:
    """Return a resource as the API does, limited to the fields that `trainyard stack import` reads."""
    tags = stored.outputs.get("tags") or {}
    name = stored.id.rpartition("/")[2]
    return {"id": stored.id, "name": name, "tags": tags, "properties": dict(stored.outputs)}
