"""Queues: flavors over pools, cluster queues that prefer spot, a local queue per team, priorities.

Every flavor names the topology. With it Kueue counts the nodes that exist, so a job moves on to the next
flavor when the nodes of the first are gone, and not only when its quota is used up.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi

from infra import names
from infra.charts import Manifest
from infra.kubernetes import KubernetesObject
from infra.platform.base import Context, Layer, metadata
from infra.platform.namespaces import Namespaces
from infra.providers.base import PoolSettings
from infra.spec.queue import QueueSpec, TeamSpec

_API = "kueue.x-k8s.io/v1beta2"


class Queues(Layer):
    """Depends on Kueue serving, since its webhooks judge every object here."""

    def __init__(
        self,
        context: Context,
        namespaces: Namespaces,
        kueue: Sequence[pulumi.Resource],
        parent: pulumi.Resource,
    ) -> None:
        stack = context.stack
        inputs = {
            "queues": [queue.model_dump(mode="json") for queue in stack.queues],
            "teams": [team.model_dump(mode="json") for team in stack.teams],
        }
        super().__init__(context, "queues", inputs, parent)
        topology = self.add(_topology(context.settings.topology_labels), kueue)
        flavors = [self.add(_flavor(pool), [topology]) for pool in context.job_pools]
        resource = {pool.name: pool.accelerator_resource for pool in context.job_pools}
        queues = {queue.name: self.add(_cluster_queue(queue, resource), flavors) for queue in stack.queues}
        for team in stack.teams:
            namespace = namespaces.by_name[names.team_namespace(team.name)]
            self.add(_local_queue(team), [namespace, queues[team.queue]])
        for name, value in stack.priorities.items():
            self.add(_priority(name, value), kueue)
        self.ready: list[KubernetesObject] = list(queues.values())
        self.register_outputs({"clusterQueues": list(queues)})


def _topology(labels: Sequence[str]) -> Manifest:
    return {
        "apiVersion": _API,
        "kind": "Topology",
        "metadata": metadata(names.TOPOLOGY),
        "spec": {"levels": [{"nodeLabel": label} for label in labels]},
    }


def _flavor(pool: PoolSettings) -> Manifest:
    return {
        "apiVersion": _API,
        "kind": "ResourceFlavor",
        "metadata": metadata(pool.name),
        "spec": {
            "nodeLabels": pool.selector,
            "tolerations": pool.tolerations,
            "topologyName": names.TOPOLOGY,
        },
    }


def _cluster_queue(queue: QueueSpec, resource: dict[str, str]) -> Manifest:
    flavors = [
        {
            "name": flavor.pool,
            # As Kueue's webhook writes it: a number would be changed back at each second `up`.
            "resources": [{"name": resource[flavor.pool], "nominalQuota": str(flavor.quota)}],
        }
        for flavor in queue.flavors
    ]
    cohort = {"cohortName": queue.cohort} if queue.cohort else {}
    return {
        "apiVersion": _API,
        "kind": "ClusterQueue",
        "metadata": metadata(queue.name),
        "spec": {
            **cohort,
            # Every team's namespace may have a local queue; which one does is the stack's word.
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "Any" if queue.cohort else "Never",
            },
            "resourceGroups": [
                {
                    "coveredResources": sorted({resource[each.pool] for each in queue.flavors}),
                    "flavors": flavors,
                }
            ],
        },
    }


def _local_queue(team: TeamSpec) -> Manifest:
    return {
        "apiVersion": _API,
        "kind": "LocalQueue",
        "metadata": metadata(team.name, names.team_namespace(team.name)),
        "spec": {"clusterQueue": team.queue},
    }


def _priority(name: str, value: int) -> Manifest:
    return {
        "apiVersion": _API,
        "kind": "WorkloadPriorityClass",
        "metadata": metadata(name),
        "value": value,
        "description": f"Jobs of {name} priority.",
    }
