"""`trainyard:kubernetes:ServingWebhooks`: the moment from which an operator's webhooks answer.

A pod that is ready is not yet one that the API server reaches: endpoints and routes follow. What is created
in between is refused, so an object is tried (a dry run, of which nothing stays) until it is let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from engine.provider.api_server import Deadline, connect, refused
from engine.provider.resource import Failure, HandlerProgress, Inputs, Moment, Outputs

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

SERVING_SECONDS = 300.0
_NOT_YET = (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS)
"""What an API server says that does not serve the kind yet, or has too much to do."""
TAKEN = "an API server that takes what the operator's webhooks validate"


class ServingWebhooks(Moment):
    """Waits; there is nothing to change or to remove."""

    TYPE = "trainyard:kubernetes:ServingWebhooks"
    SECRETS = frozenset({"kubeconfig"})

    def check(self, inputs: Inputs) -> list[Failure]:
        wanted = {"kubeconfig": str, "collection": str, "probe": Mapping}
        failures = [
            Failure(name, f"is required, as a {'mapping' if kind is Mapping else 'string'}")
            for name, kind in wanted.items()
            if not isinstance(inputs.get(name), kind)
        ]
        return failures + [Failure(name, "is no property of this type") for name in inputs.keys() - wanted]

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
    """Return why an object would not be let through yet; nothing if it would.

    Raises TrainyardError where waiting is no help: the webhooks, or the schema, do not like the object.
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
        return ""  # a conflict: evaluated, and there already
    if answer.status in _NOT_YET or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return text
    raise refused(text, TAKEN)
