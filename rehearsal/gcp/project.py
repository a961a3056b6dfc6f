"""Fake Google Cloud project: validates inputs, returns IDs and outputs as Google Cloud does, and answers the
requests of `trainyard stack import`.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rehearsal import sdk
from rehearsal.cloud import CreatedResource, Refusal, RequestedResource, Typed
from rehearsal.gcp import discovery
from rehearsal.gcp.resource_paths import address, collection, identity, name_property, resource_paths
from rehearsal.store import ResourceStore
from rehearsal.tables import table

DNS_NAME = "gke-0123456789abcdef-123456789012.rehearsal.gke.goog"
ADDRESS = "10.0.0.2"
_CERTIFICATE = base64.b64encode(b"rehearsal").decode()

OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "gcp:container/cluster:Cluster": {
        "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": DNS_NAME}},
        "masterAuth": {"clusterCaCertificate": _CERTIFICATE},
        "privateClusterConfig": {"privateEndpoint": ADDRESS},
    },
    "gcp:serviceaccount/account:Account": {"email": "nodes@rehearsal.iam.gserviceaccount.com"},
    "gcp:lustre/instance:Instance": {"mountPoint": f"{ADDRESS}@tcp:/rehearsal"},
    "gcp:filestore/instance:Instance": {"networks": [{"ipAddresses": [ADDRESS]}]},
}
"""Type → outputs that Google Cloud adds to its inputs, as far as programs use them."""


class GcpProject(Typed):
    """A project in which resources have the IDs that the Google Cloud provider gives them."""

    def __init__(self, project: str, region: str) -> None:
        super().__init__(OUTPUTS, table(__package__, "replacements"))
        self._known = {"project": project, "region": region}
        self.undescribed: set[str] = set()
        """Types of resources that no discovery document describes."""

    def check(self, resource: RequestedResource) -> Iterable[Refusal]:
        """Evaluate by the SDK's types, and where these hold by the values that the API accepts."""
        if not discovery.is_described(resource.token):
            self.undescribed.add(resource.token)
        refused = list(super().check(resource))
        return refused or list(discovery.problems(resource.token, resource.inputs))

    def autoname(self, token: str) -> str | None:
        """Names are optional in the SDK where they are not in the API: the provider generates them."""
        return "name" if "name" in sdk.optional(token) else None

    def unproven(self, _package: str) -> Mapping[str, Sequence[str]]:
        """Types without a discovery document."""
        found = dict(self._of_no_sdk())
        if self.undescribed:
            what = "no discovery document of Google Cloud: only types are checked"
            found[what] = sorted(self.undescribed)
        return found

    def create(self, resource: RequestedResource) -> CreatedResource:
        made = super().create(resource)
        return CreatedResource(
            identity(resource.token, {**self._known, **resource.inputs}) or made.id, made.outputs
        )


class GcpAnswers:
    """The API's responses for a fake's resources: a resource by its URL, or a list."""

    def __init__(self, folder: Path, project: str, region: str) -> None:
        self._folder = folder
        self._known = {"project": project, "region": region}

    def __call__(self, url: str, _parameters: Mapping[str, str]) -> dict[str, Any] | None:
        found: dict[str, Any] = {}
        for stored in ResourceStore(self._folder):
            if stored.token not in resource_paths():
                continue
            values = {**self._known, **stored.outputs}
            part = resource_paths()[stored.token].get("in")
            if collection(stored.token, values) == url:
                found.setdefault(part or "items", []).append(_listed(stored.token, values))
            elif address(stored.token, values) == url:
                found |= stored.outputs
        return found or None


def _listed(token: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A resource as lists of its like have it; a member of a policy is a binding."""
    if "member" in values:
        return {"role": values["role"], "members": [values["member"]]}
    return {"name": values[name_property(token)]}
