"""`trainyard:kubernetes:ServingWebhooks`: waits until an operator's admission webhooks serve.

A ready pod is not yet reachable from the API server: its endpoints and routes follow. Objects that are
created in between are rejected. So this resource retries a dry-run creation until it is admitted.
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
"""Status codes of an API server that does not serve the kind yet, or throttles."""
TAKEN = "an API server that takes what the operator's webhooks validate"


class ServingWebhooks(WaitResource):
    """Waits at creation; update repeats it, and delete does nothing."""

    TYPE = "trainyard:kubernetes:ServingWebhooks"
    SECRETS = frozenset({"kubeconfig"})

    def check(self, inputs: Inputs) -> list[Failure]:
        wanted = {"kubeconfig": str, "collection": str, "probe": Mapping}
        failures = [
            Failure(name, f"is required, as a {'mapping' if kind is Mapping else 'string'}")
            for name, kind in wanted.items()
            if not isinstance(inputs.get(name), kind)
        ]
        return failures + [Failure(name, "is not a property of this type") for name in inputs.keys() - wanted]

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["collection"])

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        client, late = connect(inputs["kubeconfig"]), f"{inputs['collection']} is not served"
        deadline = Deadline(SERVING_SECONDS, late, TAKEN, progress)
        while why := _refusal(client, inputs["collection"], inputs["probe"]):
            progress.log(why)
            deadline.wait(why)
        return {}


def _refusal(client: ApiClient, collection: str, probe: Mapping[str, Any]) -> str:
    """Return why the dry-run creation fails; empty if it succeeds.

    Raises TrainyardError if waiting does not help: a webhook or the schema rejects the object itself.
    """
    from urllib3.exceptions import HTTPError

    request = client.param_serialize(
        "POST",
        collection,
        query_params=[("dryRun", "All")],
        header_params={"Content-Type": "application/json", "Accept": "application/json"},
        body=dict(probe),
        auth_settings=["BearerToken"],
    )
    try:
        answer = client.call_api(*request)
        text: str = answer.read().decode()  # type: ignore[no-untyped-call]
    except HTTPError as error:
        return str(error)
    if answer.status < HTTPStatus.BAD_REQUEST or answer.status == HTTPStatus.CONFLICT:
        return ""  # a conflict: admitted, but the object exists
    if answer.status in _NOT_YET or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return text
    raise refused(text, TAKEN)
