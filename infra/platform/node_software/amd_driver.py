"""DaemonSet that installs AMD's kernel driver on cloud nodes whose image lacks it.

It installs AMD's packages for Ubuntu from a privileged pod, as Azure's own recipe does
(Azure/aks-rdma-infiniband, configs/amd-driver-installer, read 2026-11-22). AMD's operator would build the
driver as an image instead, for which it needs a registry to push to.
"""

from collections.abc import Sequence
from typing import Any

from infra.common import names
from infra.common.charts import Manifest
from infra.platform.base import metadata
from infra.platform.programs import program

NAME = "amdgpu-driver"
NAMESPACE = "kube-system"
IMAGE = "docker.io/library/ubuntu:24.04"
_LABELS = {"app.kubernetes.io/name": NAME}
_BUILDING = {"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"cpu": "32", "memory": "64Gi"}}
"""Resources for compiling the module for the node's kernel, on up to 32 processors."""
_WAITING = {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"cpu": "10m", "memory": "16Mi"}}


def manifest(models: Sequence[str]) -> Manifest:
    """Return the DaemonSet for nodes with these accelerators; it is ready where the driver is loaded."""
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(NAME, NAMESPACE),
        "spec": {
            "selector": {"matchLabels": _LABELS},
            # A new driver is loaded on new nodes: it cannot be replaced while a job runs.
            "updateStrategy": {"type": "OnDelete"},
            "template": {"metadata": {"labels": _LABELS}, "spec": _pod(models)},
        },
    }


def _pod(models: Sequence[str]) -> dict[str, Any]:
    container = {"image": IMAGE, "imagePullPolicy": "IfNotPresent"}
    has_gpus = {"key": names.ACCELERATOR_LABEL, "operator": "In", "values": list(models)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [has_gpus]}]}
    return {
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        # The packages' scripts call the node's services and use its DNS.
        "hostPID": True,
        "hostNetwork": True,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
        "tolerations": [{"operator": "Exists"}],
        "initContainers": [
            {
                **container,
                "name": "install",
                "command": ["/bin/sh", "-c", program("install_amdgpu.sh")],
                "resources": _BUILDING,
                "securityContext": {"privileged": True},
                "volumeMounts": [{"name": "host", "mountPath": "/host"}],
            }
        ],
        "containers": [
            {**container, "name": "installed", "command": ["sleep", "infinity"], "resources": _WAITING}
        ],
        "volumes": [{"name": "host", "hostPath": {"path": "/", "type": "Directory"}}],
    }
