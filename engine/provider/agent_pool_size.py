"""`trainyard:azure:AgentPoolSize`: how many nodes an agent pool of AKS is to have, and no waiting for them.

An agent pool that asks for nodes when it is made fails where Azure has none (Azure/AKS#1272), and AKS makes
none whose count is below its minimum (kubernetes-sigs/cluster-api-provider-azure#5947). So it is made with
minimum and count 0, and its minimum is raised afterwards, which AKS takes (Azure/AKS#1758): its autoscaler
then goes on trying, after evictions too (AKS, "Use the cluster autoscaler": it enforces the minimum count
when nodes are evicted, or the minimum is changed by the API).
"""

from __future__ import annotations

import time

from engine.provider.resource import Failure, Gone, Inputs, Live, Outputs, Progress, Resource
from infra.clients.azure import Azure, RefusedError
from infra.errors import Problem, TrainyardError

VERSION = "2025-09-01"
"""Of the API: the one of the SDK's AgentPool, so that what is put back has all that the SDK has set."""
_LABELS = "labels"
"""Of its nodes: they say which pool it is. AKS gets them with the agent pool itself."""
_BUSY = frozenset({409, 429})
"""Another operation is under way on the cluster or on the pool."""
WAIT_SECONDS = 30 * 60
POLL_SECONDS = 15.0


class AgentPoolSize(Resource):
    """`size` nodes, no fewer and no more, as soon as there are machines."""

    TYPE = "trainyard:azure:AgentPoolSize"
    REPLACES = frozenset({"agentPool"})
    REFRESHES = True  # an update of the agent pool by its own provider puts the minimum back

    def check(self, inputs: Inputs) -> list[Failure]:
        kinds = {"agentPool": (str, "a string"), "size": (int, "a whole number")}
        failures = [
            Failure(name, f"is required, as {words}")
            for name, (kind, words) in kinds.items()
            if not isinstance(inputs.get(name), kind)
        ]
        others = sorted(inputs.keys() - {*kinds, _LABELS})
        return failures + [Failure(name, "is no property of this type") for name in others]

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["agentPool"])

    def create(self, inputs: Inputs, progress: Progress) -> Outputs:
        place = inputs["agentPool"]
        try:
            _raise(_azure(place), place, inputs["size"], progress)
        except RefusedError as error:
            raise TrainyardError([_refused(place, f"{error.status}: {error.message}")]) from None
        return {}

    def read(self, inputs: Inputs, outputs: Outputs, progress: Progress) -> Live:
        """Nodes that have not come are no drift; another minimum is."""
        place = inputs["agentPool"]
        found = _azure(place).find(place, {"api-version": VERSION})
        if found is None:
            raise Gone
        return Live({**inputs, "size": found["properties"].get("minCount") or 0}, outputs)

    def update(self, old: Inputs, new: Inputs, progress: Progress) -> Outputs:
        return self.create(new, progress)

    def delete(self, inputs: Inputs, progress: Progress) -> None:
        """Nothing: nodes go with their agent pool."""


def _azure(place: str) -> Azure:
    """The pool's ID begins with `/subscriptions/ID/`."""
    return Azure.of_user(place.split("/")[2])


def _raise(azure: Azure, place: str, size: int, progress: Progress) -> None:
    """Raise the minimum once no other operation is under way. Raises RefusedError or TrainyardError."""
    until = time.monotonic() + WAIT_SECONDS
    while True:
        pool = azure.find(place, {"api-version": VERSION})
        if pool is None:
            raise TrainyardError([_refused(place, "404: there is none")])
        try:
            azure.put(place, VERSION, {"properties": {**pool["properties"], "minCount": size}})
            return
        except RefusedError as error:
            if error.status not in _BUSY or time.monotonic() >= until:
                raise
        progress.said(f"{place.rpartition('/')[2]}: another operation is under way")
        time.sleep(POLL_SECONDS)


def _refused(place: str, got: str) -> Problem:
    fix = f"see `az resource show --ids {place}`, and run `up` again"
    return Problem(f"agent pool {place}", got, "an agent pool whose minimum can be raised", fix)
