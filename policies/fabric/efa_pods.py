"""Pods that expect the fabric ask for it."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.unknowns import Properties
from policies.workloads import TYPES, containers, pod_specs, trains

FABRICS = {"FI_PROVIDER": "vpc.amazonaws.com/efa", "FI_EFA_USE_DEVICE_RDMA": "vpc.amazonaws.com/efa"}
"""Variable → the resource that a container with it must request."""

DEVICES = "/dev/infiniband"


def judge(resource: Resource) -> Iterator[Violation]:
    """Variables without the device, and the devices' folder in a pod that trains, both mean TCP."""
    for pod in pod_specs(resource):
        for container in containers(pod):
            yield from _requested(container)
        for volume in pod.blocks("volumes") if trains(pod) else ():
            if volume.get("hostPath.path", "").startswith(DEVICES):
                yield Violation(volume.at("hostPath.path"), DEVICES, "the device plugin's resource")


def _requested(container: Properties) -> Iterator[Violation]:
    names = {variable.get("name"): variable for variable in container.blocks("env")}
    limits = container.block("resources.limits")
    for name, device in FABRICS.items():
        if name in names and not limits.entry(device):
            yield Violation(
                names[name].at("name"), f"{name} without {device}", f"{device} in resources.limits"
            )


POLICY = Policy(
    name="fabric-efa-pods",
    title="Pods with EFA settings request EFA devices",
    reason="NCCL falls back to TCP without a word: the job runs, at a fraction of its speed.",
    remedy="Request vpc.amazonaws.com/efa, and remove the folder of devices.",
    types=TYPES,
    judge=judge,
    frameworks=("AWS EFA user guide: EFA with EKS",),
)
