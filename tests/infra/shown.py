"""A plan in the form of golden files: our resources in full, charts' as digests, encoded values decoded."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from tests.infra.plan import Plan, Registration

OURS = {"app.kubernetes.io/managed-by": "trainyard"}
_JSON = {"policy", "assumeRolePolicy", "configurationValues", "eventPattern"}


def blocks_of(plan: Plan) -> dict[str, Mapping[str, Any]]:
    """Return URN → the reviewed part of the resource; with `outputs`, if there are any."""
    shown: dict[str, Mapping[str, Any]] = {resource.urn: _shown(resource) for resource in plan.resources}
    return {**shown, "outputs": dict(plan.outputs)} if plan.outputs else shown


def _shown(resource: Registration) -> dict[str, Any]:
    """Return our resources in full, and a digest of a chart's, which is not ours to copy."""
    labels = (resource.inputs.get("metadata") or {}).get("labels", {})
    from_chart = resource.type.startswith("kubernetes:") and not OURS.items() <= labels.items()
    text = json.dumps(resource.inputs, sort_keys=True)
    if from_chart:
        return {"digest": hashlib.sha256(text.encode()).hexdigest()[:12]}
    if resource.type == "trainyard:kubernetes:CustomResourceDefinitions":
        return {"definitions": sorted(resource.inputs["definitions"])}
    if resource.type.endswith(":ValidatingAdmissionPolicy"):
        # The same on every target: `golden/admission.yaml` has one in full.
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return {"digest": digest, "dependsOn": list(resource.dependencies)}
    if resource.type == "trainyard:kubernetes:ServingWebhooks":
        evidence = [each["evidence"] for each in resource.inputs["probes"]]
        about = {"probes": resource.inputs["collection"], "evidence": evidence}
        return {**about, "dependsOn": list(resource.dependencies)}
    return {"inputs": _decoded(resource.inputs), "dependsOn": list(resource.dependencies)}


def _decoded(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _decode(key, value) for key, value in inputs.items()}


def _decode(key: str, value: Any) -> Any:
    if key in _JSON and isinstance(value, str):
        return json.loads(value)
    if key == "userData" and isinstance(value, str):
        return base64.b64decode(value).decode().splitlines()
    return value
