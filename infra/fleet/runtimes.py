"""Compares each queue's runtimes on its clusters, and copies to the manager those that the fleet file
names for it. A difference ends the program.

Kueue sends a job to a worker with the pods of the manager, and the worker's Kueue ends a job whose
pods differ. So a runtime must be the same on all of them; one that the manager lacks is copied to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pulumi

from infra.common.kubernetes_objects import Access, ExistingObject, KubernetesObject
from infra.errors import Problem
from infra.fleet.worker import Worker
from infra.platform.base import metadata
from infra.stackfile.fleet import Fleet

_API, _KIND = "trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"
_MANAGER = "the manager"
"""Name of the manager in messages and beside the workers' names, which contain no spaces."""
_COMPARED = ("initContainers", "containers", "tolerations")
"""Parts of a pod that Kueue compares."""
RuntimeSpec = Mapping[str, Any]


def runtimes(
    fleet: Fleet, manager: Access, workers: Mapping[str, Worker], parent: pulumi.Resource
) -> list[KubernetesObject]:
    """Compare the clusters' runtimes; return the copies in the manager."""
    clusters = {_MANAGER: manager, **{name: worker.access for name, worker in workers.items()}}
    specs: dict[tuple[str, str], pulumi.Output[RuntimeSpec]] = {}
    copies: dict[str, KubernetesObject] = {}

    def spec(cluster: str, runtime: str) -> pulumi.Output[RuntimeSpec]:
        if (cluster, runtime) not in specs:
            prefix = "hub" if cluster == _MANAGER else cluster
            options = clusters[cluster].options(parent)
            found = ExistingObject(f"{prefix}/{runtime}", _API, _KIND, runtime, options)
            specs[cluster, runtime] = found.spec
        return specs[cluster, runtime]

    for index, queue in enumerate(fleet.queues):
        worker_names = [worker.name for worker in fleet.workers_of(queue)]
        for position, runtime in enumerate(queue.runtimes):
            is_copied = runtime in fleet.manager.runtimes
            compared_clusters = worker_names if is_copied else [_MANAGER, *worker_names]
            compare = spec_comparer(f"queues[{index}].runtimes[{position}]", runtime, compared_clusters)
            found_specs = (spec(cluster, runtime) for cluster in compared_clusters)
            common_spec = pulumi.Output.all(*found_specs).apply(compare)
            if is_copied and runtime not in copies:
                labels = {"trainer.kubeflow.org/framework": runtime.partition("-")[0]}
                manifest = {
                    "apiVersion": _API,
                    "kind": _KIND,
                    "metadata": metadata(runtime, labels=labels),
                    "spec": common_spec,
                }
                copies[runtime] = KubernetesObject(manifest, manager.options(parent), cluster="hub")
    return list(copies.values())


def spec_comparer(
    path: str, runtime: str, clusters: Sequence[str]
) -> Callable[[Sequence[RuntimeSpec]], RuntimeSpec]:
    """Return a function that returns the common spec, or raises RunError."""

    def compare(specs: Sequence[RuntimeSpec]) -> RuntimeSpec:
        first = _pods(specs[0])
        for cluster, spec in zip(clusters, specs, strict=True):
            different = _difference(first, _pods(spec))
            if different:
                got = f"{runtime!r}, whose {different} on {cluster} are not those on {clusters[0]}"
                fix = "give both stacks the same image and fabric, or leave one out of the queue"
                problem = Problem(path, got, "a runtime with the same pods on all of them", fix)
                raise pulumi.RunError(str(problem))
        return specs[0]

    return compare


def _pods(spec: RuntimeSpec) -> Mapping[str, Mapping[str, Any]]:
    """Return part of the job → what Kueue compares of its pods."""
    jobs = spec["template"]["spec"]["replicatedJobs"]
    pods = {job["name"]: job["template"]["spec"]["template"]["spec"] for job in jobs}
    return {name: {key: pod.get(key) or [] for key in _COMPARED} for name, pod in pods.items()}


def _difference(one: Mapping[str, Mapping[str, Any]], other: Mapping[str, Mapping[str, Any]]) -> str:
    if one.keys() != other.keys():
        return "parts"
    return next((key for name in one for key in _COMPARED if one[name][key] != other[name][key]), "")
