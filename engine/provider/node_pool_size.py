"""`trainyard:gcp:NodePoolSize`: how many nodes a node pool of GKE is to have, and no waiting for them.

A node pool that asks for nodes when it is made fails where Compute Engine has none, 35 minutes later
(hashicorp/terraform-provider-google#10121). One that is made empty is there at once; resized then, its
managed instance groups go on trying for as long as nodes lack. GKE's autoscaler would not: a pool that has
fewer nodes than its minimum gets some only when a pod waits (kubernetes/autoscaler#2288).
"""

from __future__ import annotations

import time

from engine.provider.resource import Failure, Gone, Inputs, Live, Outputs, Progress, Resource
from infra.clients.google import Google, RefusedError
from infra.errors import Problem, TrainyardError

CONTAINER = "https://container.googleapis.com/v1"
_TEXTS = ("nodePool",)
_NUMBERS = ("size", "zones")
_LABELS = "labels"
"""Of its nodes: they say which pool the node pool belongs to. GKE gets them with the node pool itself."""
_BUSY = frozenset({400, 409, 429})
"""With `operation` in the message: another one is under way on the cluster, or too many are."""
WAIT_SECONDS = 45 * 60
"""An operation that waits for nodes ends after 35 minutes."""
POLL_SECONDS = 15.0


class NodePoolSize(Resource):
    """`size` nodes, as many in each of `zones` zones, as soon as there are machines."""

    TYPE = "trainyard:gcp:NodePoolSize"
    REPLACES = frozenset(_TEXTS)

    def check(self, inputs: Inputs) -> list[Failure]:
        failures = [
            Failure(name, "is required, as a string")
            for name in _TEXTS
            if not isinstance(inputs.get(name), str)
        ]
        failures += [
            Failure(name, "is required, as a whole number")
            for name in _NUMBERS
            if not isinstance(inputs.get(name), int)
        ]
        others = sorted(inputs.keys() - {*_TEXTS, *_NUMBERS, _LABELS})
        return failures + [Failure(name, "is no property of this type") for name in others]

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["nodePool"])

    def create(self, inputs: Inputs, progress: Progress) -> Outputs:
        _resize(Google.of_user(), inputs, progress)
        return {}

    def read(self, inputs: Inputs, outputs: Outputs, progress: Progress) -> Live:
        if Google.of_user().find(f"{CONTAINER}/{inputs['nodePool']}") is None:
            raise Gone
        # What there is need not be what was asked for, and that is no drift.
        return Live(inputs, outputs)

    def update(self, old: Inputs, new: Inputs, progress: Progress) -> Outputs:
        return self.create(new, progress)

    def delete(self, inputs: Inputs, progress: Progress) -> None:
        """Nothing: nodes go with their node pool."""


def _resize(google: Google, inputs: Inputs, progress: Progress) -> None:
    """Ask once no other operation is in the way. Raises TrainyardError."""
    place, per_zone = inputs["nodePool"], inputs["size"] // inputs["zones"]
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            google.ask("POST", f"{CONTAINER}/{place}:setSize", {"nodeCount": per_zone})
            return
        except RefusedError as error:
            busy = error.status in _BUSY and "operation" in error.message.lower()
            if not busy or time.monotonic() >= until:
                raise TrainyardError([_refused(place, error)]) from None
        progress.said(f"{place.rpartition('/')[2]}: another operation is under way")
        time.sleep(POLL_SECONDS)


def _refused(place: str, error: RefusedError) -> Problem:
    got = f"{error.status}: {error.message}"
    fix = "see `gcloud container operations list`, and run `up` again"
    return Problem(f"node pool {place}", got, "a node pool that can be resized", fix)
