"""`trainyard:kubernetes:ServingWebhooks`: waits until the API server calls an operator's admission
webhooks.

A ready pod is not yet reachable from the API server: its endpoints and routes follow, and objects that are
created in between are rejected. The API server admits objects unchecked until it knows the webhook, then
rejects them until the webhook has its CA bundle. So this resource retries dry-run creations until the answers
show that the webhooks evaluated the objects.

The API server may also keep a configuration as it was before its controller added the CA, until the next
change of it. A request that lists the configurations just before the change stores what it has found after
the change has removed it (`mutating_webhook_manager.go` and `validating_webhook_manager.go` in
k8s.io/apiserver/pkg/admission/configuration, since github.com/kubernetes/kubernetes/pull/118051; 1.37 still
does). So this resource changes a configuration whose CA is not read.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from engine.provider.api_server import Deadline, refused
from engine.provider.resource import Failure, HandlerProgress, Inputs, Outputs, WaitResource, wrong_inputs
from infra.clients.kubernetes import ApiError, ApiServer, NoAnswer

SERVING_SECONDS = 300.0
STALE_SECONDS = 30.0
"""Time for which the API server may refuse a webhook's certificate before its configuration is changed, and
then until the next change; a controller with a new CA needs a few seconds."""
REREAD = "trainyard.dev/reread"
"""Annotation with the time of the last change that made the API server read a configuration again."""
_REFUSED = re.compile(r'failed calling webhook \\?"([^"\\]+).*certificate signed by unknown authority')
_NOT_YET = (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS)
"""Status codes of an API server that does not serve the kind yet, or that throttles."""
EXPECTED = "an API server that has the operator's webhooks evaluate objects"


class ServingWebhooks(WaitResource):
    """Waits at creation; update repeats it, and delete does nothing."""

    TYPE = "trainyard:kubernetes:ServingWebhooks"
    SECRETS = frozenset({"kubeconfig"})

    def check(self, inputs: Inputs) -> list[Failure]:
        return wrong_inputs(inputs, {"kubeconfig": str, "collection": str, "probes": list})

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["collection"])

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        api, late = ApiServer.of(inputs["kubeconfig"]), f"{inputs['collection']} is not served"
        deadline = Deadline(SERVING_SECONDS, late, EXPECTED, progress)
        for probe in inputs["probes"]:
            stale = _StaleConfigurations(api, progress)
            while why := _why_not_serving(api, inputs["collection"], probe["manifest"], probe["evidence"]):
                progress.log(why)
                stale.change_if_refused(why)
                deadline.wait(why)
        return {}


class _StaleConfigurations:
    """Changes the configurations whose CA the API server still refuses after STALE_SECONDS."""

    def __init__(self, api: ApiServer, progress: HandlerProgress) -> None:
        self._api, self._progress = api, progress
        self._due: float | None = None
        """When the next change is due, on the monotonic clock; None unless the last answer was a refusal."""

    def change_if_refused(self, answer: str) -> None:
        refusal, now = _REFUSED.search(answer), time.monotonic()
        if refusal is None:
            self._due = None
        elif self._due is None:
            self._due = now + STALE_SECONDS
        elif now >= self._due:
            self._due = now + STALE_SECONDS
            for path in _configurations_of(self._api, refusal[1]):
                self._change(path)

    def _change(self, path: str) -> None:
        annotations = {REREAD: datetime.now(UTC).isoformat(timespec="seconds")}
        kind, name = path.split("/")[-2:]
        result = "annotated, so that the API server reads its CA again"
        try:
            self._api.merge(path, {"metadata": {"annotations": annotations}})
        except (ApiError, NoAnswer) as error:
            result = f"not annotated: {error.message}"
        self._progress.log(f"{kind}/{name}: {result}")


def _configurations_of(api: ApiServer, webhook: str) -> Iterator[str]:
    """Find the paths of the configurations in which a webhook of this name has a CA."""
    for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        collection = f"/apis/admissionregistration.k8s.io/v1/{kind}"
        try:
            found = api.items(collection)
        except (ApiError, NoAnswer):
            continue
        for each in found:
            with_ca = {
                hook["name"] for hook in each.get("webhooks", ()) if hook["clientConfig"].get("caBundle")
            }
            if webhook in with_ca:
                yield f"{collection}/{each['metadata']['name']}"


def _why_not_serving(api: ApiServer, collection: str, manifest: Mapping[str, Any], evidence: str) -> str:
    """Create an object as a dry run; return why its webhook did not evaluate it, or empty if it did.

    Raises TrainyardError if something else rejects the object, so that waiting does not help.
    """
    try:
        text = json.dumps(api.create(collection, manifest, {"dryRun": "All"}))
    except NoAnswer as error:
        return error.message
    except ApiError as error:
        # A webhook that cannot be called is named as well, with status 500.
        if error.status in _NOT_YET or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return error.message
        if evidence not in error.message:
            raise refused(error.message, EXPECTED) from None
        return ""
    return "" if evidence in text else f"the API server admits {manifest['kind']} without {evidence}"
