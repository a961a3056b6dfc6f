"""Deletes the claims and volumes of training environments that nothing in an embedded cluster uses any more.

The stack retains them (infra/platform/storage/storage.py): jobs that wait, run or start again have the
claim of the environment that they were submitted with.
"""

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from infra.clients.kubernetes import ApiServer
from infra.common import names
from infra.common.artifacts import Artifacts

_RUNTIMES = "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes"
_USERS = ("/api/v1/pods", "/apis/kueue.x-k8s.io/v1beta2/workloads")
"""Objects in namespaces that have the volumes of pods: also of jobs that have ended, or have no pods yet."""
_NOT_DEFINED = {HTTPStatus.NOT_FOUND}
"""Statuses of a list of a kind that an interrupted `up` has not defined."""


def remove_unused(api: ApiServer) -> bool:
    """Delete each claim that no pod, job in a queue or runtime has, and volumes that have lost their claim.

    The claim of the present environment stays: the state of an interrupted `up` may have it already. Returns
    whether a volume of the present environment was deleted, which the state still has.
    """
    present = str(Artifacts.from_environment().mounted_env())
    of_all = {names.training_env_claim(present), *_claims(api.items(_RUNTIMES, empty_on=_NOT_DEFINED))}
    users = [each for kind in _USERS for each in api.items(kind, empty_on=_NOT_DEFINED)]
    namespaces = {each["metadata"]["name"] for each in api.items("/api/v1/namespaces")}
    is_missing = False
    used = {(each["metadata"]["namespace"], claim) for each in users for claim in _claims(each)}
    for each in api.items("/api/v1/persistentvolumes"):
        bound = each["spec"]["claimRef"]
        namespace, claim = bound["namespace"], bound["name"]
        if not claim.startswith(f"{names.TRAINING_ENV}-"):
            continue
        # No other claim binds a released volume (Kubernetes, Persistent Volumes, "Reclaiming").
        if each["status"]["phase"] == "Released" or not {claim, (namespace, claim)} & (of_all | used):
            # An `up` that was interrupted here may have deleted the claim.
            api.delete(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
            api.delete(f"/api/v1/persistentvolumes/{each['metadata']['name']}")
            is_missing |= namespace in namespaces and claim == names.training_env_claim(present)
    return is_missing


def _claims(found: Any) -> Iterator[str]:  # noqa: ANN401 -- JSON
    """Yield the names of the claims in an object of any kind."""
    if isinstance(found, dict):
        for key, value in found.items():
            if key == "persistentVolumeClaim" and isinstance(value, dict) and "claimName" in value:
                yield value["claimName"]
            else:
                yield from _claims(value)
    elif isinstance(found, list):
        for each in found:
            yield from _claims(each)
