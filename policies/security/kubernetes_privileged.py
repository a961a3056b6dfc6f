"""Policy: only allow-listed pods are privileged, add root capabilities, or use host namespaces and paths."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Severity, Violation, texts
from policies.rules import independent, must_avoid
from policies.unknowns import PropertyBlock
from policies.workloads import TYPES, containers, namespaced_name, pod_specs

NODE_NAMESPACES = ("hostPID", "hostIPC", "hostNetwork")
MIGHTY_CAPABILITIES = frozenset(
    {"ALL", "BPF", "DAC_READ_SEARCH", "SYS_ADMIN", "SYS_BOOT", "SYS_MODULE", "SYS_PTRACE", "SYS_RAWIO"}
)


VOLUME = "kubernetes:core/v1:PersistentVolume"
OF_NODE = re.compile(
    r"/(root|home|var|var/lib)?/?$|/(etc|proc|sys|run|boot|dev|var/(run|log|lib/(kubelet|containerd|docker)))(/|$)"
)
"""Paths by which a pod becomes root on its node."""
DRIVERS = (
    "gpu-operator/*",
    "nvidia-network-operator/*",
    "kube-system/nvidia-device-plugin*",
    "kube-system/*efa*device-plugin*",
    "kube-system/nccl-*-installer",
    "kube-system/device-injector",
    "kube-system/memory-lock",
    "kube-system/csi-azurelustre-node",
    "kube-system/amdgpu-driver",
    "trainyard-logs/collector",
)
"""Drivers and device plugins that need the node, in namespaces to which only admins can write."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Privileged containers, the node's namespaces, capabilities that amount to root, paths of the node."""
    if resource.type.startswith("aws:"):
        found = list(must_avoid(resource.props, {"privileged": ((True,), "false")}))
    else:
        found = [violation for pod in pod_specs(resource) for violation in _might(pod)]
    if resource.type == VOLUME and OF_NODE.match(path := resource.props.get("spec.hostPath.path", "data")):
        found.append(Violation("spec.hostPath.path", path, "a path for data alone, or a shared filesystem"))
    if found and not any(
        fnmatchcase(namespaced_name(resource), pattern) for pattern in resource.parameters["allowed"]
    ):
        yield from found


@independent
def _might(pod: PropertyBlock) -> Iterator[Violation]:
    for name in NODE_NAMESPACES:
        if pod.get(name):
            yield Violation(pod.at(name), "true", "false, or a workload of the allow list")
    for volume in pod.blocks("volumes"):
        if volume.has("hostPath"):
            got, allowed = "a path of the node", "a claim, or a workload of the allow list"
            yield Violation(volume.at("hostPath"), got, allowed)
    yield from _unconfined(pod.block("securityContext"))
    for container in containers(pod):
        context = container.block("securityContext")
        yield from _unconfined(context)
        if context.get("privileged"):
            yield Violation(context.at("privileged"), "true", "false, or a workload of the allow list")
        for capability in context.texts("capabilities.add"):
            if capability.upper().removeprefix("CAP_") in MIGHTY_CAPABILITIES:  # as runtimes compare them
                allowed = "none that amounts to root on the node"
                yield Violation(context.at("capabilities.add"), capability, allowed)
        for port in container.blocks("ports"):
            if port.get("hostPort"):
                yield Violation(port.at("hostPort"), port.get("hostPort"), "a Service's port")


def _unconfined(context: PropertyBlock) -> Iterator[Violation]:
    for path in ("seccompProfile.type", "appArmorProfile.type"):
        if context.get(path) == "Unconfined":
            yield Violation(context.at(path), "Unconfined", "RuntimeDefault")


POLICY = Policy(
    name="kubernetes-privileged",
    title="Privileged pods come from the allow list only",
    reason="A privileged pod is root on its node, with access to every job, model and credential there.",
    remedy="Drop the privilege, or add `namespace/name` of a driver or agent that needs it to `allowed`.",
    types=(*TYPES, VOLUME, "aws:*"),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=(
        "CIS Kubernetes 5.2.2",
        "NSA/CISA Kubernetes Hardening 1.2 Pod security",
        "NIST SP 800-190 4.4.3",
    ),
    parameters={
        "allowed": texts("Patterns of `namespace/name` of workloads that may be privileged.", *DRIVERS)
    },
)
