"""Declares Kueue's topologies, flavors, cluster and local queues, priorities and provisioning checks.

Every flavor names a topology. With it Kueue counts the nodes that exist, so a job moves on to the next flavor
when the first has no free nodes, and not only when its quota is used up.
"""

from collections.abc import Sequence
from typing import Any

import pulumi

import catalog
from infra.common import names, quantities
from infra.common.charts import Manifest
from infra.common.kubernetes_objects import KubernetesObject
from infra.platform.base import Layer, PlatformContext, metadata
from infra.platform.namespaces import Namespaces
from infra.stackfile.offer import offer_of
from infra.stackfile.queue import DEFAULT_LOCAL_QUEUE, FlavorSpec, QueueSpec, TeamSpec
from infra.stackfile.self_service import today
from infra.stackfile.stack import Stack
from infra.targets.base import ClusterSettings, PoolSettings

_API = "kueue.x-k8s.io/v1beta2"
_PROVISIONING = "nodes-on-call"
_PODS, _ENOUGH_PODS = "pods", "100k"
"""Resource of pods in a queue, with a quota that is never reached. Kueue counts every job's pods by itself
(`corev1.ResourcePods`), so a job without accelerators gets a flavor too, without which it would not be
scheduled. Pods are limited by kubelets, and by the quota of the team's namespace."""
_ENOUGH_OF_NODES = {"cpu": "1M", "memory": "1Ei", "ephemeral-storage": "1Ei"}
"""Quotas that are never reached, for a Kueue of others, which may count what jobs take of nodes: it admits no
job that requests a resource without quota (flavorassigner.go). Ours does not count them."""
_ENOUGH_DEVICES = "1M"

_MOVED = pulumi.ResourceOptions(replace_on_changes=["spec.clusterQueue"], delete_before_replace=True)
"""Options that replace a local queue when its immutable `clusterQueue` changes; pending jobs find it again
by name."""


class Queues(Layer):
    """Depends on Kueue serving, since its webhooks validate every object here."""

    def __init__(
        self,
        context: PlatformContext,
        namespaces: Namespaces,
        kueue: Sequence[pulumi.Resource],
        parent: pulumi.Resource,
    ) -> None:
        stack = context.stack
        inputs = {
            "queues": [queue.model_dump(mode="json") for queue in stack.queues],
            "teams": [team.model_dump(mode="json", include={"name", "queue"}) for team in stack.teams],
        }
        super().__init__(context, "queues", inputs, parent, kueue)
        topologies = {
            name: self.add(_topology(name, context.settings), kueue)
            for name in sorted({_topology_of(pool) for pool in context.queued_pools})
        }
        flavors = [
            self.add(_flavor(pool, stack), [topologies[_topology_of(pool)]]) for pool in context.queued_pools
        ]
        queued = [pool for pool in context.job_pools if pool.capacity_mode == "queued"]
        checks = self._admission_checks(context, queued, kueue)
        queues = {
            queue.name: self.add(
                _cluster_queue(queue, context, _queued_flavors(queue, queued)), [*flavors, *checks]
            )
            for queue in stack.queues
        }
        self.ready: list[pulumi.Resource] = list(queues.values())
        for team in stack.teams:
            namespace = namespaces.by_name[names.team_namespace(team.name)]
            for name, queue in _local_queues(team, stack).items():
                made = self.add(_local_queue(team, name, queue), [namespace, queues[queue]], _MOVED)
                self.ready.append(made)
        for name, value in stack.priorities.items():
            self.add(_priority(name, value), kueue)
        self.register_outputs({"clusterQueues": list(queues)})

    def _admission_checks(
        self, context: PlatformContext, queued: Sequence[PoolSettings], kueue: Sequence[pulumi.Resource]
    ) -> list[KubernetesObject]:
        """Where pools are queued, a job is admitted once the cloud has promised all of its nodes."""
        if not queued:
            return []
        resources = sorted({pool.accelerator_resource for pool in queued})
        config = self.add(_provisioning(context.settings, resources), kueue)
        return [self.add(_admission_check(), [config])]


def _local_queues(team: TeamSpec, stack: Stack) -> dict[str, str]:
    """Return a team's local queues; a Kueue of others may queue Deployments and pods by one named `default`,
    and so the pod that receives the team's code (deployment_webhook.go).
    """
    if not _is_of_others(stack):
        return dict(team.local_queues)
    return {name: queue for name, queue in team.local_queues.items() if name != DEFAULT_LOCAL_QUEUE}


def _topology_of(pool: PoolSettings) -> str:
    if not pool.accelerators_per_node:
        return names.HOST_TOPOLOGY
    return names.RACK_TOPOLOGY if catalog.fabric(pool.fabric_class).nvlink_domain else names.TOPOLOGY


def _topology(name: str, settings: ClusterSettings) -> Manifest:
    """An NVLink domain is narrower than a leaf, and wider than a host."""
    *network, host = settings.topology_labels
    if name == names.HOST_TOPOLOGY:
        network = []
    racks = [settings.rack_label] if name == names.RACK_TOPOLOGY and settings.rack_label else []
    levels = [*network, *racks, host]
    return {
        "apiVersion": _API,
        "kind": "Topology",
        "metadata": metadata(name),
        "spec": {"levels": [{"nodeLabel": label} for label in levels]},
    }


def _flavor(pool: PoolSettings, stack: Stack) -> Manifest:
    about = metadata(pool.name)
    if pool.accelerators_per_node:
        about["annotations"] = {names.OFFER_ANNOTATION: offer_of(stack, pool.name).as_text()}
    return {
        "apiVersion": _API,
        "kind": "ResourceFlavor",
        "metadata": about,
        "spec": {
            "nodeLabels": pool.selector,
            "tolerations": pool.tolerations,
            "topologyName": _topology_of(pool),
        },
    }


def _queued_flavors(queue: QueueSpec, queued: Sequence[PoolSettings]) -> list[str]:
    """Name the queue's flavors whose nodes must be asked for."""
    names_of_queued = {pool.name for pool in queued}
    return [flavor.pool for flavor in queue.flavors if flavor.pool in names_of_queued]


def _provisioning(settings: ClusterSettings, resources: Sequence[str]) -> Manifest:
    """The upstream autoscaler approves once it has requested the nodes, before any of them exists.

    Where they never come, Kueue asks again; after the last time it would give the job up for good, so that is
    made far away: a job waits for capacity until a user cancels it.
    """
    retries = {"backoffBaseSeconds": 60, "backoffMaxSeconds": 900, "backoffLimitCount": 10_000}
    return {
        "apiVersion": _API,
        "kind": "ProvisioningRequestConfig",
        "metadata": metadata(_PROVISIONING),
        "spec": {
            "provisioningClassName": settings.provisioning_class,
            "managedResources": list(resources),
            **({"retryStrategy": retries} if settings.autoscaler else {}),
        },
    }


def _admission_check() -> Manifest:
    config = {"apiGroup": _API.partition("/")[0], "kind": "ProvisioningRequestConfig", "name": _PROVISIONING}
    return {
        "apiVersion": _API,
        "kind": "AdmissionCheck",
        "metadata": metadata(_PROVISIONING),
        "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": config},
    }


def _cluster_queue(queue: QueueSpec, context: PlatformContext, queued_flavors: Sequence[str]) -> Manifest:
    cohort = {"cohortName": queue.cohort} if queue.cohort else {}
    weight = {} if queue.weight is None else {"fairSharing": {"weight": str(queue.weight)}}
    check = {"name": _PROVISIONING, "onFlavors": list(queued_flavors)}
    checked = {"admissionChecksStrategy": {"admissionChecks": [check]}} if queued_flavors else {}
    return {
        "apiVersion": _API,
        "kind": "ClusterQueue",
        "metadata": metadata(queue.name),
        "spec": {
            **cohort,
            **weight,
            **checked,
            # Every team's namespace may have a local queue; the stack file decides which ones do.
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "flavorFungibility": {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "withinClusterQueue": "LowerPriority",
                "reclaimWithinCohort": "Any" if queue.cohort else "Never",
            },
            "resourceGroups": [_resource_group(queue, context)],
        },
    }


def _resource_group(queue: QueueSpec, context: PlatformContext) -> dict[str, Any]:
    """One group, so that a job has one flavor. Every flavor lists all resources that the group covers.

    Pools without accelerators come first: jobs without accelerators then take no room from others.
    """
    resource = {pool.name: pool.accelerator_resource for pool in context.job_pools}
    accelerators = sorted({resource[flavor.pool] for flavor in queue.flavors})
    quotas: dict[str, dict[str, dict[str, str]]] = {pool.name: {} for pool in context.cpu_pools}
    quotas |= {flavor.pool: {resource[flavor.pool]: _quota(flavor)} for flavor in queue.flavors}
    enough = {_PODS: _ENOUGH_PODS, **(_enough_beside(context) if _is_of_others(context.stack) else {})}
    unlimited = [{"name": name, "nominalQuota": quota} for name, quota in enough.items()]
    return {
        "coveredResources": [*accelerators, *enough],
        "flavors": [
            {
                "name": pool,
                "resources": [
                    *({"name": name, **given.get(name, {"nominalQuota": "0"})} for name in accelerators),
                    *unlimited,
                ],
            }
            for pool, given in quotas.items()
        ],
    }


def _is_of_others(stack: Stack) -> bool:
    return stack.operators.kueue == "existing"


def _enough_beside(context: PlatformContext) -> dict[str, str]:
    """Return the resources of nodes and fabrics that jobs request beside accelerators, each with enough."""
    devices = {name for fabric in context.fabrics for name in catalog.fabric(fabric).pod_resources}
    return {**_ENOUGH_OF_NODES, **dict.fromkeys(sorted(devices - _ENOUGH_OF_NODES.keys()), _ENOUGH_DEVICES)}


def _quota(flavor: FlavorSpec) -> dict[str, str]:
    """Spell a quota as Kueue's webhook does: a number would be a change at each second `up`."""
    limits = {"borrowingLimit": flavor.borrowing_limit, "lendingLimit": flavor.lending_limit}
    limited = {name: quantities.written(limit) for name, limit in limits.items() if limit is not None}
    return {"nominalQuota": quantities.written(flavor.quota), **limited}


def _local_queue(team: TeamSpec, name: str, queue: str) -> Manifest:
    return {
        "apiVersion": _API,
        "kind": "LocalQueue",
        "metadata": metadata(name, names.team_namespace(team.name)),
        "spec": {"clusterQueue": queue, **({"stopPolicy": "Hold"} if team.is_held(today()) else {})},
    }


def _priority(name: str, value: int) -> Manifest:
    return {
        "apiVersion": _API,
        "kind": "WorkloadPriorityClass",
        "metadata": metadata(name),
        "value": value,
        "description": f"Jobs of {name} priority.",
    }
