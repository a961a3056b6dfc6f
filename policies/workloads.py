"""Finds the pod specs, and other blocks that determine where pods run, in pods, workload objects and custom
resources with pod templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import catalog
from policies.policy import Resource
from policies.unknowns import PropertyBlock, Unknown, UnknownProperty, Value

TYPES = (
    "kubernetes:core/v1:Pod*",
    "kubernetes:core/v1:ReplicationController*",
    "kubernetes:apps/*",
    "kubernetes:batch/*",
    "kubernetes:*.*/*",
)
"""Types of built-in workloads, and of every named API group: a custom resource may contain a pod template."""

WITHOUT_PODS = (
    "kubernetes:apiextensions.k8s.io/",
    "kubernetes:rbac.authorization.k8s.io/",
    "kubernetes:helm.sh/",
)

POD_TEMPLATE_FIELDS = frozenset(
    {
        "containers", "ephemeralContainers", "initContainers", "items", "jobTemplate", "podTemplate",
        "replicatedJobs", "spec", "template",
    }
)  # fmt: skip
"""Properties that may hold a pod spec: where one of them is unknown, a pod may be hidden."""

PLACEMENT = ("nodeSelector", "tolerations", "affinity")
"""Properties of a pod spec that determine its node."""

CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def pod_specs(resource: Resource) -> Iterator[PropertyBlock]:
    """Every block of the resource that lists containers.

    Raises `UnknownProperty` where a block that may hold one is not known at preview.
    """
    if not resource.type.startswith(WITHOUT_PODS):
        yield from _search(resource.props.data, "", ("containers",))


def placements(resource: Resource) -> Iterator[PropertyBlock]:
    """Every block that determines where pods run: pod specs, and a TrainJob's overrides of its runtime's.

    Raises `UnknownProperty` as `pod_specs` does.
    """
    if not resource.type.startswith(WITHOUT_PODS):
        yield from _search(resource.props.data, "", ("containers", *PLACEMENT))


def containers(pod: PropertyBlock) -> Iterator[PropertyBlock]:
    """All containers of a pod spec: main, init and ephemeral ones."""
    for kind in CONTAINERS:
        yield from pod.blocks(kind)


def trains(pod: PropertyBlock) -> bool:
    """Whether the pod asks for accelerators."""
    return any(
        container.block("resources.limits").entry(name)
        for container in containers(pod)
        for name in catalog.accelerator_resources()
    )


def namespaced_name(resource: Resource) -> str:
    """`namespace/name` of the object, as allow lists spell it; the logical name where it is named later."""
    metadata = resource.props.block("metadata")
    return f"{metadata.get('namespace', 'default')}/{metadata.get('name', resource.name)}"


def _search(value: Value, path: str, marks: Sequence[str]) -> Iterator[PropertyBlock]:
    """Blocks that have one of the properties `marks`, at any depth."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _search(item, f"{path}[{index}]", marks)
    if not isinstance(value, dict):
        return
    if any(isinstance(value.get(mark), list | dict | Unknown) for mark in marks):
        yield PropertyBlock(value, path)
    for key, item in value.items():
        where = f"{path}.{key}" if path else key
        if isinstance(item, Unknown) and key in POD_TEMPLATE_FIELDS:
            raise UnknownProperty(where)
        if isinstance(item, dict | list):
            yield from _search(item, where, marks)
