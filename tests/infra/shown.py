"""A plan in the form of golden files: our resources in full, charts' as digests, encoded values decoded."""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from infra.common.names import OWNER_ANNOTATION
from infra.controller.main import SETTINGS
from infra.platform.controller import program_digest
from tests.infra.plan import Plan, Registration

OURS = {"app.kubernetes.io/managed-by": "trainyard"}
_JSON = {"policy", "assumeRolePolicy", "configurationValues", "eventPattern"}


def blocks_of(plan: Plan, *concerned: str) -> dict[str, Mapping[str, Any]]:
    """Return URN → the reviewed part of the resource; with `outputs`, if there are any.

    `concerned`: only these kinds, packages (`gcp:`) and names of resources, without outputs.
    """
    if concerned:
        return {each.urn: _shown(each) for each in plan.resources if _is_concerned(each, concerned)}
    shown: dict[str, Mapping[str, Any]] = {resource.urn: _shown(resource) for resource in plan.resources}
    return {**shown, "outputs": dict(plan.outputs)} if plan.outputs else shown


def _is_concerned(resource: Registration, concerned: tuple[str, ...]) -> bool:
    kind = resource.type.rpartition(":")[2]
    return bool({kind, resource.name, f"{resource.type.partition(':')[0]}:"} & set(concerned))


def _shown(resource: Registration) -> dict[str, Any]:
    """Return our resources in full, as a release's values, and a digest of a chart's objects, which are not
    ours to copy.
    """
    # Else each change of the controller would be one of every golden file.
    inputs = json.loads(json.dumps(_unmarked(resource.inputs)).replace(program_digest(), "DIGEST"))
    if resource.type.endswith(":ConfigMap") and "main.py" in inputs["data"]:
        inputs["data"] = {name: text for name, text in inputs["data"].items() if name == SETTINGS}
    labels = (inputs.get("metadata") or {}).get("labels", {})
    of_kubernetes = resource.type.startswith("kubernetes:") and not resource.type.endswith(":Release")
    from_chart = of_kubernetes and not OURS.items() <= labels.items()
    text = json.dumps(inputs, sort_keys=True)
    if from_chart:
        return {"digest": hashlib.sha256(text.encode()).hexdigest()[:12]}
    if resource.type == "trainyard:kubernetes:CustomResourceDefinitions":
        return {"definitions": sorted(resource.inputs["definitions"])}
    if resource.type == "trainyard:kubernetes:ClusterClaim":
        return {"owner": inputs["owner"], "dependsOn": list(resource.dependencies)}
    if resource.type.endswith(":ValidatingAdmissionPolicy"):
        # The same on every target: `golden/admission.yaml` has one in full.
        digest = hashlib.sha256(text.encode()).hexdigest()[:12]
        return {"digest": digest, "dependsOn": list(resource.dependencies)}
    if resource.type == "trainyard:kubernetes:ServingWebhooks":
        evidence = [each["evidence"] for each in resource.inputs["probes"]]
        about = {"probes": resource.inputs["collection"], "evidence": evidence}
        return {**about, "dependsOn": list(resource.dependencies)}
    return {"inputs": _decoded(inputs), "dependsOn": list(resource.dependencies)}


def _unmarked(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    """Omit the owner's mark, which all objects have (`test_every_object_has_the_mark_of_its_stack`)."""
    metadata = inputs.get("metadata") or {}
    annotations = {
        key: value for key, value in (metadata.get("annotations") or {}).items() if key != OWNER_ANNOTATION
    }
    if annotations == (metadata.get("annotations") or {}):
        return inputs
    rest = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**inputs, "metadata": {**rest, **({"annotations": annotations} if annotations else {})}}


def _decoded(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _decode(key, value) for key, value in inputs.items()}


def _decode(key: str, value: Any) -> Any:
    if key in _JSON and isinstance(value, str):
        return json.loads(value)
    if key == "userData" and isinstance(value, str):
        return base64.b64decode(value).decode().splitlines()
    return value
