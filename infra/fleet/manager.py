"""Declares the fleet's objects on the manager: MultiKueue workers, their kubeconfigs, flavor and queues."""

from collections.abc import Mapping
from typing import Any

import pulumi

from infra.common import names, quantities
from infra.common.charts import Manifest
from infra.common.kubernetes_objects import Access, KubernetesObject, RotatedKubeconfig
from infra.fleet.runtimes import runtimes
from infra.fleet.worker import KUEUE, Worker, local_queue
from infra.platform.base import metadata
from infra.platform.operators import kueue
from infra.stackfile.fleet import DispatchSpec, Fleet, WorkerSpec

_API = f"{KUEUE}/v1beta2"
_CONTROLLER = "kueue.x-k8s.io/multikueue"
FLEET_LABEL = "trainyard.dev/fleet"
"""Label that no node has: jobs of the fleet's flavor are admitted on the manager and run on a worker."""


class Manager(pulumi.ComponentResource):
    """Kueue's objects on the manager. `expiry`: for each worker, when the manager's token for it expires."""

    def __init__(
        self, fleet: Fleet, access: Access, workers: Mapping[str, Worker], parent: pulumi.Resource
    ) -> None:
        options = pulumi.ResourceOptions(parent=parent)
        inputs = {"queues": [queue.model_dump(mode="json", exclude_none=True) for queue in fleet.queues]}
        super().__init__("trainyard:fleet:Hub", f"{fleet.name}-hub", inputs, options)
        self._fleet, self._access = fleet, access
        self.expiry: dict[str, pulumi.Output[str]] = {}
        clusters = {each.name: self._cluster(each, workers[each.name]) for each in fleet.workers}
        copies = runtimes(fleet, access, workers, self)
        topology = self._add(_topology(fleet))
        flavor = self._add(_flavor(fleet), topology)
        for queue in fleet.queues:
            members = [clusters[worker.name] for worker in fleet.workers_of(queue)]
            config = self._add(_config(fleet, queue), *members)
            check = self._add(_check(queue), config)
            cluster_queue = self._add(_cluster_queue(fleet, queue), flavor, check, *copies)
            for team in queue.teams:
                self._add(local_queue(queue.name, team, queue.name), cluster_queue)
        self.register_outputs({})

    def _cluster(self, worker: WorkerSpec, there: Worker) -> KubernetesObject:
        """The worker as Kueue knows it, behind its token."""
        fleet = self._fleet
        secret = {"namespace": kueue.NAMESPACE, "name": f"fleet-{fleet.name}-{worker.name}"}
        token = RotatedKubeconfig(
            f"{fleet.name}-{worker.name}",
            {
                "issuer": there.kubeconfig,
                "holder": self._access.kubeconfig,
                "serviceAccount": there.account,
                "secret": secret,
                "lifetimeSeconds": fleet.credentials.lifetime_seconds,
                "serial": fleet.credentials.serial,
                **({"endpoint": worker.endpoint} if worker.endpoint else {}),
            },
            pulumi.ResourceOptions(parent=self, depends_on=list(there.ready)),
        )
        self.expiry[worker.name] = token.expires
        return self._add(_multikueue_cluster(worker, secret["name"]), token)

    def _add(self, manifest: Manifest, *depends_on: pulumi.Resource) -> KubernetesObject:
        return KubernetesObject(manifest, self._access.options(self, depends_on), cluster="hub")


def _multikueue_cluster(worker: WorkerSpec, secret: str) -> Manifest:
    kubeconfig = {"location": secret, "locationType": "Secret"}
    # Kueue's object has no field for the cluster's location: policies read it from the label.
    labels = {names.REGION_LABEL: worker.place.name}
    return _object("MultiKueueCluster", worker.name, {"clusterSource": {"kubeConfig": kubeconfig}}, labels)


def _config(fleet: Fleet, queue: DispatchSpec) -> Manifest:
    clusters = [worker.name for worker in fleet.workers_of(queue)]
    return _object("MultiKueueConfig", queue.name, {"clusters": clusters})


def _check(queue: DispatchSpec) -> Manifest:
    config = {"apiGroup": KUEUE, "kind": "MultiKueueConfig", "name": queue.name}
    return _object("AdmissionCheck", queue.name, {"controllerName": _CONTROLLER, "parameters": config})


def _topology(fleet: Fleet) -> Manifest:
    """Runtimes ask for pods close to each other, so the flavor has a topology; the worker places them."""
    return _object("Topology", f"fleet-{fleet.name}", {"levels": [{"nodeLabel": names.HOSTNAME_LABEL}]})


def _flavor(fleet: Fleet) -> Manifest:
    name = f"fleet-{fleet.name}"
    return _object("ResourceFlavor", name, {"nodeLabels": {FLEET_LABEL: fleet.name}, "topologyName": name})


def _cluster_queue(fleet: Fleet, queue: DispatchSpec) -> Manifest:
    # In the form that Kueue's webhook writes: every later `up` would find a number changed.
    resources = [
        {"name": name, "nominalQuota": quantities.written(quota)}
        for name, quota in sorted(queue.quota.items())
    ]
    flavors = [{"name": f"fleet-{fleet.name}", "resources": resources}]
    teams = [names.team_namespace(team) for team in queue.teams]
    inside = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": teams}
    spec = {
        "namespaceSelector": {"matchExpressions": [inside]},
        "queueingStrategy": "BestEffortFIFO",
        "preemption": {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Never"},
        "admissionChecksStrategy": {"admissionChecks": [{"name": queue.name}]},
        "resourceGroups": [{"coveredResources": sorted(queue.quota), "flavors": flavors}],
    }
    return _object("ClusterQueue", queue.name, spec)


def _object(
    kind: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str] | None = None
) -> Manifest:
    return {"apiVersion": _API, "kind": kind, "metadata": metadata(name, labels=labels), "spec": dict(spec)}
