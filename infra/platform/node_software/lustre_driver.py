"""Manifests of the Azure Managed Lustre CSI driver's node plugin, without its controller.

There is no chart. Objects: kubernetes-sigs/azurelustre-csi-driver v0.4.0, deploy, read 2026-11-22; its
controller creates filesystems, which stacks declare themselves.
"""

from collections.abc import Iterator
from typing import Any

from infra.common.charts import Manifest
from infra.platform.base import metadata

DRIVER = "azurelustre.csi.azure.com"
NAME = "csi-azurelustre-node"
NAMESPACE = "kube-system"
IMAGES = {
    "driver": "mcr.microsoft.com/oss/v2/kubernetes-csi/azurelustre-csi:v0.4.0-noble",
    "registrar": "mcr.microsoft.com/oss/kubernetes-csi/csi-node-driver-registrar:v2.13.0",
    "liveness": "mcr.microsoft.com/oss/kubernetes-csi/livenessprobe:v2.15.0",
}
"""Images of the driver; `noble` is for Ubuntu 24.04 and installs the Lustre client of the node's kernel."""
LUSTRE_CLIENT = {"LUSTRE_VERSION": "2.16.1", "CLIENT_SHA_SUFFIX": "14-gbc76088"}
_HEALTH_PORT = 29763
_SOCKET = f"/var/lib/kubelet/plugins/{DRIVER}"
_FOLDERS = {
    "socket": (_SOCKET, "DirectoryOrCreate"),
    "registration": "/var/lib/kubelet/plugins_registry",
    "kubelet": "/var/lib/kubelet",
    "credentials": ("/etc/kubernetes", "DirectoryOrCreate"),
    "devices": "/dev",
    "os-release": ("/etc/os-release", "File"),
}
"""Host path of each volume, with its type where that is not `Directory`."""
_SMALL = {"requests": {"cpu": "10m", "memory": "20Mi"}, "limits": {"cpu": "100m", "memory": "100Mi"}}


def manifests() -> Iterator[Manifest]:
    """Yield the driver's objects."""
    yield {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": metadata(DRIVER),
        # Each team's folder already has its owner: mounting never changes ownership.
        "spec": {"attachRequired": False, "podInfoOnMount": True, "fsGroupPolicy": "None"},
    }
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(NAME, NAMESPACE)}
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(NAME, NAMESPACE),
        "spec": {
            "selector": {"matchLabels": _LABELS},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": _LABELS}, "spec": _pod()},
        },
    }


_LABELS = {"app.kubernetes.io/name": NAME}


def _pod() -> dict[str, Any]:
    return {
        "priorityClassName": "system-node-critical",
        "serviceAccountName": NAME,
        # The driver calls the API server only to remove the taint of unready nodes, which is disabled.
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "dnsPolicy": "Default",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [_liveness(), _registrar(), _driver()],
        "volumes": [{"name": name, "hostPath": _path(name)} for name in _FOLDERS],
    }


def _path(name: str) -> dict[str, str]:
    found = _FOLDERS[name]
    path, kind = (found, "Directory") if isinstance(found, str) else found
    return {"path": path, "type": kind}


def _liveness() -> dict[str, Any]:
    return {
        "name": "liveness",
        "image": IMAGES["liveness"],
        "imagePullPolicy": "IfNotPresent",
        "args": ["--csi-address=/csi/csi.sock", "--probe-timeout=120s", f"--health-port={_HEALTH_PORT}"],
        "resources": _SMALL,
        "volumeMounts": [{"name": "socket", "mountPath": "/csi"}],
    }


def _registrar() -> dict[str, Any]:
    return {
        "name": "registrar",
        "image": IMAGES["registrar"],
        "imagePullPolicy": "IfNotPresent",
        "args": ["--csi-address=/csi/csi.sock", f"--kubelet-registration-path={_SOCKET}/csi.sock"],
        "resources": _SMALL,
        "volumeMounts": [
            {"name": "socket", "mountPath": "/csi"},
            {"name": "registration", "mountPath": "/registration"},
        ],
    }


def _driver() -> dict[str, Any]:
    node = {"name": "KUBE_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    client = {"AZURELUSTRE_CSI_INSTALL_LUSTRE_CLIENT": "yes", **LUSTRE_CLIENT}
    ready = {"exec": {"command": ["/app/readinessProbe.sh"]}, "timeoutSeconds": 10}
    return {
        "name": "driver",
        "image": IMAGES["driver"],
        "imagePullPolicy": "IfNotPresent",
        "args": [
            "--endpoint=unix:///csi/csi.sock",
            "--nodeid=$(KUBE_NODE_NAME)",
            "--remove-not-ready-taint=false",
        ],
        "env": [*({"name": name, "value": value} for name, value in client.items()), node],
        "ports": [{"name": "healthz", "containerPort": _HEALTH_PORT}],
        "lifecycle": {"preStop": {"exec": {"command": ["/bin/sh", "-c", "lustre_rmmod"]}}},
        "livenessProbe": {
            "httpGet": {"path": "/healthz", "port": "healthz"},
            "initialDelaySeconds": 60,
            "periodSeconds": 30,
            "timeoutSeconds": 10,
        },
        "readinessProbe": {**ready, "periodSeconds": 30},
        # The driver loads kernel modules first.
        "startupProbe": {**ready, "periodSeconds": 5, "failureThreshold": 120},
        "resources": {
            "requests": {"cpu": "10m", "memory": "20Mi"},
            "limits": {"cpu": "1", "memory": "200Mi"},
        },
        "securityContext": {"privileged": True},
        "volumeMounts": [
            {"name": "socket", "mountPath": "/csi"},
            {"name": "kubelet", "mountPath": "/var/lib/kubelet", "mountPropagation": "Bidirectional"},
            {"name": "credentials", "mountPath": "/etc/kubernetes", "readOnly": True},
            {"name": "devices", "mountPath": "/dev"},
            {"name": "os-release", "mountPath": "/etc/host-os-release", "readOnly": True},
        ],
    }
