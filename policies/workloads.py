"""Finds the pod specs, and other blocks that determine where pods run, in pods, workload objects and custom
resources with pod templates.
"""

from collections.abc import Iterator, Mapping

import catalog
from policies.policy import Resource
from policies.unknowns import UNKNOWN, PropertyBlock, Unknown, UnknownProperty, Value

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

CONTAINERS = ("containers", "initContainers", "ephemeralContainers", "steps", "sidecars")
SINGLE = ("container", "script", "trainer", "driver", "executor", "main")
"""Properties of custom resources (TrainJob, Argo, Tekton, Spark) with one container, known by its image."""
SHAPES = frozenset({"containers", "steps", *SINGLE})
BLOCKS = (list, dict, Unknown)


def pod_specs(resource: Resource) -> Iterator[PropertyBlock]:
    """Every block of the resource that lists containers, or has one by its image.

    Raises `UnknownProperty` where a block that may hold one is not known at preview.
    """
    return (block for block in placements(resource) if _has_containers(block.data))


def placements(resource: Resource) -> Iterator[PropertyBlock]:
    """Every block that determines where pods run: pod specs, and a TrainJob's overrides of its runtime's.

    Raises `UnknownProperty` as `pod_specs` does.
    """
    if not resource.type.startswith(WITHOUT_PODS):
        yield from resource.props.remembered("placements", lambda: _search(resource.props.data, ""))


def containers(pod: PropertyBlock) -> Iterator[PropertyBlock]:
    """All containers of a pod spec: main, init and ephemeral ones."""
    for kind in CONTAINERS:
        yield from pod.blocks(kind)
    for kind in SINGLE:
        if _has_image(pod.data.get(kind)):
            yield pod.block(kind)
    if "driver" in pod.data and _has_image(pod.data):  # a SparkApplication
        yield pod


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


def _has_image(value: Value) -> bool:
    return isinstance(value, dict) and isinstance(value.get("image"), (str, Unknown))


def _has_containers(value: Mapping[str, Value]) -> bool:
    if value.keys().isdisjoint(SHAPES):
        return False
    steps = value.get("steps")
    return (
        isinstance(value.get("containers"), BLOCKS)
        or any(_has_image(value.get(kind)) for kind in SINGLE)
        or ("driver" in value and _has_image(value))
        or (isinstance(steps, list) and any(map(_has_image, steps)))
    )


def _search(value: Value, path: str) -> Iterator[PropertyBlock]:
    """Blocks with containers or with a placement, at any depth."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _search(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        if _has_containers(value) or any(isinstance(value.get(name), BLOCKS) for name in PLACEMENT):
            yield PropertyBlock(value, path)
        for key, item in value.items():
            if isinstance(item, BLOCKS):
                where = f"{path}.{key}" if path else key
                if item is UNKNOWN and key in POD_TEMPLATE_FIELDS:
                    raise UnknownProperty(where)
                yield from _search(item, where)
