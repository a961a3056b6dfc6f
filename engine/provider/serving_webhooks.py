"""`trainyard:kubernetes:ServingWebhooks`: waits until the API server calls an operator's admission
webhooks.

A ready pod is not yet reachable from the API server: its endpoints and routes follow, and objects that are
created in between are rejected. The API server admits objects unchecked until it knows the webhook, then
rejects them until the webhook has its CA bundle. So this resource retries dry-run creations until the answers
show that the webhooks evaluated the objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from engine.provider.api_server import Deadline, connect, refused
from engine.provider.resource import Failure, HandlerProgress, Inputs, Outputs, WaitResource

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

SERVING_SECONDS = 300.0
_NOT_YET = (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS)
"""Status codes of an API server that does not serve the kind yet, or that throttles."""
EXPECTED = "an API server that has the operator's webhooks evaluate objects"


class ServingWebhooks(WaitResource):
    """Waits at creation; update repeats it, and delete does nothing."""

    TYPE = "trainyard:kubernetes:ServingWebhooks"
    SECRETS = frozenset({"kubeconfig"})

    def check(self, inputs: Inputs) -> list[Failure]:
        wanted = {"kubeconfig": str, "collection": str, "probes": list}
        failures = [
            Failure(name, f"is required, as a {'list' if kind is list else 'string'}")
            for name, kind in wanted.items()
            if not isinstance(inputs.get(name), kind)
        ]
        return failures + [Failure(name, "is not a property of this type") for name in inputs.keys() - wanted]

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["collection"])

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        client, late = connect(inputs["kubeconfig"]), f"{inputs['collection']} is not served"
        deadline = Deadline(SERVING_SECONDS, late, EXPECTED, progress)
        for probe in inputs["probes"]:
            while why := _why_not_serving(client, inputs["collection"], probe["manifest"], probe["evidence"]):
                progress.log(why)
                deadline.wait(why)
        return {}


def _why_not_serving(client: ApiClient, collection: str, manifest: Mapping[str, Any], evidence: str) -> str:
    """Create an object as a dry run; return why its webhook did not evaluate it, or empty if it did.

    Raises TrainyardError if something else rejects the object, so that waiting does not help.
    """
    from urllib3.exceptions import HTTPError

    request = client.param_serialize(
        "POST",
        collection,
        query_params=[("dryRun", "All")],
        header_params={"Content-Type": "application/json", "Accept": "application/json"},
        body=dict(manifest),
        auth_settings=["BearerToken"],
    )
    try:
        answer = client.call_api(*request)
        text: str = answer.read().decode()  # type: ignore[no-untyped-call]
    except HTTPError as error:
        return str(error) or type(error).__name__
    # A webhook that cannot be called is named as well, with status 500.
    if answer.status in _NOT_YET or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return text or f"the API server answers with status {answer.status}"
    if evidence in text:
        return ""
    if answer.status < HTTPStatus.BAD_REQUEST:
        return f"the API server admits {manifest['kind']} without {evidence}"
    raise refused(text, EXPECTED)
