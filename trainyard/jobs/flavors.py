"""Reads Kueue's ResourceFlavors: a pool's offer, and why a flavor can never take a job, whatever is free.

Kueue does not refuse such a job: it waits, while the flavor's quota is free.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import catalog
from infra.clients.kubernetes import Object
from infra.common import names
from infra.stackfile.offer import PoolOffer
from trainyard.jobs import workloads


def offer_of(flavor: Object) -> PoolOffer | None:
    """Return what a pool offers to jobs; None where the flavor does not say it."""
    text = flavor.get("metadata", {}).get("annotations", {}).get(names.OFFER_ANNOTATION)
    try:
        return PoolOffer.read(text) if text else None
    except ValueError:
        return None


def node_labels(flavor: Object) -> Mapping[str, str]:
    """Return the labels of the nodes that a flavor selects."""
    found: Mapping[str, str] = flavor.get("spec", {}).get("nodeLabels") or {}
    return found


@dataclass(frozen=True)
class FlavorLimits:
    """Limits of a queue's flavor that no job's end changes; a flavor that the user may not see has fewer."""

    max_accelerators: int
    """Maximum number of accelerators that the queue can have in this flavor, with what it can borrow."""
    flavor: Object
    """The ResourceFlavor; empty where it is not visible."""
    label_keys: frozenset[str] = frozenset()
    """Keys of the node labels of all the queue's flavors, by which Kueue selects one."""

    def refusal(self, workload: Object) -> str:
        """Return why the flavor can never take a job; empty where it can."""
        needed = workloads.accelerators(workload)
        if needed > self.max_accelerators:
            return f"it has {self.max_accelerators} GPUs, the job asks for {needed}"
        return next(self._refusals(workload), "")

    def _refusals(self, workload: Object) -> Iterator[str]:
        offer = offer_of(self.flavor)
        for pod in workloads.pods(workload):
            asked = workloads.accelerators_of(pod)
            if not asked:
                continue
            if self.flavor and not self._is_selected(pod):
                yield "the job's node selector or affinity excludes it"
            if offer is None:
                continue
            resource = catalog.fabric(offer.fabric).accelerator_resource
            if asked.keys() != {resource}:
                yield f"it has {resource}, the job asks for {', '.join(asked)}"
            elif asked[resource] > offer.accelerators_per_node:
                yield f"its nodes have {offer.accelerators_per_node} GPUs, a pod asks for {asked[resource]}"

    def _is_selected(self, pod: Object) -> bool:
        """Whether a pod's node selector and required affinity match the flavor's node labels, as in Kueue."""
        labels = node_labels(self.flavor)
        selector = pod.get("nodeSelector") or {}
        if any(labels.get(key) != value for key, value in selector.items() if key in self.label_keys):
            return False
        affinity = (pod.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
        terms = required.get("nodeSelectorTerms") or ()
        return not terms or any(self._holds(term, labels) for term in terms)

    def _holds(self, term: Object, labels: Mapping[str, str]) -> bool:
        known = (each for each in term.get("matchExpressions") or () if each["key"] in self.label_keys)
        return all(_matches(each, labels.get(each["key"])) for each in known)


def _matches(expression: Object, value: str | None) -> bool:
    values = expression.get("values") or ()
    return {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }.get(expression["operator"], True)
