"""`trainyard:kubernetes:RotatedKubeconfig`: writes a kubeconfig with an expiring service account token into a
Secret, and renews it when due.

The token is requested from the cluster that will accept it, and written into a Secret of the cluster that
uses it. Neither the engine's state nor its logs hold it: the state has its expiry. At half of its lifetime an
update requests another one; the former one remains valid until its expiry, so no user of it is cut off.
"""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import yaml

from engine.provider.api_server import refusals
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
from infra.clients.kubernetes import ApiServer
from infra.clients.kubernetes.access import current, reached

MANAGER = "trainyard"
KEY = "kubeconfig"
"""Key in the Secret under which MultiKueue reads the kubeconfig."""
EXPECTED = "an API server that serves this, and a kubeconfig with the right to request it"
_ACCOUNT, _SECRET = ("serviceAccount", "secret")


class RotatedKubeconfig(ResourceHandler):
    """`issuer` honours the token of `serviceAccount`; `holder` keeps it in `secret`."""

    TYPE = "trainyard:kubernetes:RotatedKubeconfig"
    SECRETS = frozenset({"issuer", "holder"})
    OUTPUTS = frozenset({"expires", "renews"})
    RENEWED = OUTPUTS
    REPLACES = frozenset({_SECRET})
    REFRESHES = True

    def check(self, inputs: Inputs) -> list[Failure]:
        wanted = {"issuer": str, "holder": str, "lifetimeSeconds": int}
        failures = wrong_inputs(inputs, wanted, others=[_ACCOUNT, _SECRET, "serial", "endpoint"])
        for name in (_ACCOUNT, _SECRET):
            value = inputs.get(name)
            if not isinstance(value, Mapping) or value.keys() != {"namespace", "name"}:
                failures.append(Failure(name, "is required: a mapping of namespace and name"))
        return failures

    def identify(self, inputs: Inputs) -> str:
        return f"{inputs[_SECRET]['namespace']}/{inputs[_SECRET]['name']}"

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        asked = datetime.now(UTC)
        with refusals(EXPECTED, f"no service account {inputs[_ACCOUNT]['name']}"):
            status = ApiServer.of(inputs["issuer"]).create(_tokens(inputs), _request(inputs))["status"]
        # An API server may grant a shorter lifetime than requested.
        expires = datetime.fromisoformat(status["expirationTimestamp"])
        kubeconfig = kubeconfig_with(status["token"], inputs["issuer"], inputs.get("endpoint") or "")
        with refusals(EXPECTED):
            ApiServer.of(inputs["holder"]).apply(_secret_path(inputs), _secret(inputs, kubeconfig))
        progress.log(f"token of {inputs[_ACCOUNT]['name']} until {_timestamp(expires)}")
        return {"expires": _timestamp(expires), "renews": _timestamp(asked + (expires - asked) / 2)}

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        return self.create(new, progress)

    def due(self, outputs: Outputs) -> str:
        """Return `expires` from the half of the token's life on."""
        renews = outputs.get("renews")
        over = not isinstance(renews, str) or datetime.now(UTC) >= datetime.fromisoformat(renews)
        return "expires" if over else ""

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        """Check that the Secret exists, without reading it. Raises ResourceNotFound if it does not."""
        with refusals(EXPECTED):
            if ApiServer.of(inputs["holder"]).find(_secret_path(inputs)) is None:
                raise ResourceNotFound
        return ReadResult(inputs, outputs)

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Remove the Secret; the token ends with its service account, or by itself."""
        with refusals(EXPECTED):
            ApiServer.of(inputs["holder"]).delete(_secret_path(inputs))


def kubeconfig_with(token: str, issuer: str, endpoint: str = "") -> str:
    """Return a kubeconfig that holds the token, and of the issuer's own only how its API is reached."""
    _, cluster = current(yaml.safe_load(issuer))
    access = {key: value for key, value in reached(cluster).items() if key in _REACHED}
    if endpoint:
        access["server"] = endpoint
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "worker", "cluster": access}],
        "users": [{"name": "hub", "user": {"token": token}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": "hub"}}],
        "current-context": "worker",
    }
    return yaml.safe_dump(content, sort_keys=False)


_REACHED = ("server", "certificate-authority-data", "tls-server-name", "proxy-url")


def _tokens(inputs: Inputs) -> str:
    account = inputs[_ACCOUNT]
    return f"/api/v1/namespaces/{account['namespace']}/serviceaccounts/{account['name']}/token"


def _request(inputs: Inputs) -> Mapping[str, Any]:
    spec = {"expirationSeconds": inputs["lifetimeSeconds"]}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def _secret_path(inputs: Inputs) -> str:
    return f"/api/v1/namespaces/{inputs[_SECRET]['namespace']}/secrets/{inputs[_SECRET]['name']}"


def _secret(inputs: Inputs, kubeconfig: str) -> Mapping[str, Any]:
    metadata = {**inputs[_SECRET], "labels": {"app.kubernetes.io/managed-by": MANAGER}}
    data = {KEY: base64.b64encode(kubeconfig.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": data}


def _timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds")
