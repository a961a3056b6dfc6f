"""Creates the cluster's first API objects (Nodes, the DNS Service and the daemons' RBAC rules), and reads and
reports whether a Node is ready.
"""

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from infra.clients.kubernetes import ApiServer, Object
from local.cluster.addresses import AddressPlan
from local.cluster.config import NodeConfig, Taint
from local.cluster.control_plane import DNS_USER
from local.cluster.network_policies import USER as POLICIES_USER

GPU = "nvidia.com/gpu"
PREEMPTING = "trainyard.dev/preempting"
_MISSED = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_DNS_SERVICE = "/api/v1/namespaces/kube-system/services/kube-dns"
_DNS_ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/kube-dns"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"


_WATCHED: Mapping[str, Mapping[str, Sequence[str]]] = {
    DNS_USER: {"": ("services", "namespaces", "pods", "endpoints"), "discovery.k8s.io": ("endpointslices",)},
    POLICIES_USER: {"": ("namespaces", "pods"), "networking.k8s.io": ("networkpolicies",)},
}
"""Daemon outside of pods → API group → resources that the daemon lists and watches."""


def apply_rights(api: ApiServer) -> None:
    """Declare the daemons' read rights for which upstream has no role."""
    for user, resources in _WATCHED.items():
        api.apply(f"{_RBAC}/clusterroles/{user}", _role(user, resources))
        api.apply(f"{_RBAC}/clusterrolebindings/{user}", _binding(user))


def apply_dns(api: ApiServer, plan: AddressPlan) -> None:
    """Declare the Service `kube-dns`, whose server runs outside of pods."""
    ports = [{"name": name, "port": 53, "protocol": protocol} for name, protocol in _DNS_PORTS]
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
        "spec": {"clusterIP": str(plan.dns_service), "ports": ports},
    }
    endpoints: Object = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [str(plan.control)]}],
        "ports": ports,
    }
    api.apply(_DNS_SERVICE, service)
    api.apply(_DNS_ENDPOINTS, endpoints)


def apply_node(api: ApiServer, config: NodeConfig, plan: AddressPlan) -> None:
    """Declare a Node as it shall be; kubelet then reports on it.

    Labels and GPUs are ours by server-side apply, so that one removed from the config is deleted. Taints
    are one list for all writers: those of Kubernetes and of a preemption are left as they are.
    """
    path = node_path(config.name)
    labels = {
        "kubernetes.io/hostname": config.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        **config.labels,
    }
    identity: Object = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": config.name}}
    found = api.apply(path, {**identity, "metadata": {"name": config.name, "labels": labels}})
    taints = desired_taints(found["spec"].get("taints", []), config.taints)
    if taints != found["spec"].get("taints", []):
        api.merge(path, {"spec": {"taints": taints}})
    gpus = {GPU: str(config.gpus)} if config.gpus else {}
    address = {"type": "InternalIP", "address": str(plan.nodes[config.name].address)}
    status: Object = {"addresses": [address], "capacity": gpus, "allocatable": gpus}
    api.apply(f"{path}/status", {**identity, "status": status})


def desired_taints(found: Sequence[Object], declared: Sequence[Taint]) -> list[Object]:
    """The declared taints, after those of other writers."""
    foreign = [taint for taint in found if _is_foreign(str(taint["key"]))]
    return [*foreign, *(taint.model_dump(exclude_defaults=True) for taint in declared)]


def node_path(name: str) -> str:
    """Path of a Node in the API."""
    return f"/api/v1/nodes/{name}"


def is_ready(node: Object) -> bool:
    """Whether the node reports itself Ready, and the control plane lets pods onto it for that."""
    conditions = node.get("status", {}).get("conditions", [])
    reported = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    taints = {taint["key"] for taint in node["spec"].get("taints", [])}
    return reported and not taints & _MISSED


def report_starting(api: ApiServer, name: str) -> None:
    """Report that a node is not Ready, before its kubelet starts.

    The last kubelet's status does not hold; and one that finds itself Ready reports only after 10 s.
    """
    condition = {
        "type": "Ready",
        "status": "False",
        "reason": "Starting",
        "message": "the node is starting",
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    api.merge_status(node_path(name), {"conditions": [condition]})


_DNS_PORTS = (("dns", "UDP"), ("dns-tcp", "TCP"))


def _is_foreign(key: str) -> bool:
    return key.startswith("node.kubernetes.io/") or key == PREEMPTING


def _role(user: str, resources: Mapping[str, Sequence[str]]) -> Object:
    rules = [
        {"apiGroups": [group], "resources": list(kinds), "verbs": ["list", "watch"]}
        for group, kinds in resources.items()
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": user},
        "rules": rules,
    }


def _binding(user: str) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
