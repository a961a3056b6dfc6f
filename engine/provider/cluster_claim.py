"""`trainyard:kubernetes:ClusterClaim`: a ConfigMap that says which stack has the cluster, created before all
else. A second stack is refused, since shared objects (policies, operators, classes) have one owner.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from socket import gethostname
from typing import Any
from urllib.parse import urlsplit

from engine.provider.api_server import Deadline, refusals
from engine.provider.resource import (
    Failure,
    HandlerProgress,
    Inputs,
    Outputs,
    ReadResult,
    ResourceHandler,
    ResourceNotFound,
    wrong_inputs,
)
from infra.clients.kubernetes import ApiError, ApiServer
from infra.errors import ExitCode, Problem, TrainyardError

NAMESPACE, NAME = "kube-system", "trainyard"
"""Every cluster has this namespace, and only administrators write there."""
_COLLECTION = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PATH = f"{_COLLECTION}/{NAME}"
EXPECTED = "an API server that lets this user create ConfigMaps in kube-system"
NAMESPACE_SECONDS = 60.0
"""A control plane that has just started creates kube-system by itself."""


class ClusterClaim(ResourceHandler):
    """Created, never applied: of two stacks at the same moment the API server accepts one."""

    TYPE = "trainyard:kubernetes:ClusterClaim"
    SECRETS = frozenset({"kubeconfig"})

    def check(self, inputs: Inputs) -> list[Failure]:
        return wrong_inputs(inputs, {"kubeconfig": str, "owner": str})

    def identify(self, inputs: Inputs) -> str:
        return f"{NAMESPACE}/{NAME}"

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        """Claim the cluster; what an `up` of the same stack left behind is its own."""
        api, owner = ApiServer.of(inputs["kubeconfig"]), inputs["owner"]
        state = state_at(os.environ.get("PULUMI_BACKEND_URL", ""))
        deadline = Deadline(NAMESPACE_SECONDS, f"{NAMESPACE} does not exist", EXPECTED, progress)
        while not _create(api, {"owner": owner, "state": state}):
            deadline.wait()
        found = claim_of(api)
        if found and found.get("owner") != owner:
            raise TrainyardError([taken(found)], ExitCode.WRONG_INPUT)
        return {}

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        found = claim_of(ApiServer.of(inputs["kubeconfig"]))
        if not found:
            raise ResourceNotFound(PATH)
        return ReadResult({**inputs, "owner": found.get("owner", "")}, outputs)

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        """Another address of the cluster, or another name of its stack."""
        api = ApiServer.of(new["kubeconfig"])
        if (claim_of(api) or {}).get("owner") == old["owner"] != new["owner"]:
            with refusals(EXPECTED):
                api.merge(PATH, {"data": {"owner": new["owner"]}})
        return self.create(new, progress)

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Release the cluster, unless another stack has it by now."""
        api = ApiServer.of(inputs["kubeconfig"])
        if (claim_of(api) or {}).get("owner") == inputs["owner"]:
            with refusals(EXPECTED):
                api.delete(PATH)


def _create(api: ApiServer, data: Mapping[str, str]) -> bool:
    """Create the claim unless one exists; False while there is no namespace for it."""
    claim = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "data": {**data, "since": datetime.now(UTC).isoformat(timespec="seconds")},
    }
    with refusals(EXPECTED):
        try:
            api.create(_COLLECTION, claim)
        except ApiError as error:
            if error.status not in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
                raise
            return error.status == HTTPStatus.CONFLICT
    return True


def state_at(backend: str) -> str:
    """Return where a state is, to tell stacks of one name apart: no credentials, a folder with its host."""
    url = urlsplit(backend)
    where = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}" if backend else ""
    return f"{where} of {gethostname()}" if url.scheme == "file" else where


def claim_of(api: ApiServer) -> Mapping[str, Any] | None:
    """Return the data of the cluster's claim: `owner`, `since` and `state`; None where no stack has it."""
    with refusals(EXPECTED):
        found = api.find(PATH)
    return None if found is None else found.get("data") or {}


def taken(claim: Mapping[str, Any]) -> Problem:
    """Report the stack that has the cluster."""
    owner, since = claim.get("owner", "unknown"), claim.get("since", "unknown")
    state = f", with its state in {claim['state']}" if claim.get("state") else ""
    return Problem(
        path="the cluster",
        got=f"stack {owner} has it since {since}{state}",
        allowed="a cluster without another stack: one stack has its operators, policies and classes",
        fix="add your teams to that stack. If it or its state is gone for good, release the cluster:"
        f" kubectl delete configmap {NAME} --namespace {NAMESPACE}",
    )
