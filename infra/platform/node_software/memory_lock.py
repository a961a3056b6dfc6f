"""The pod of a DaemonSet that raises the limit on locked memory (RLIMIT_MEMLOCK) of a node's new containers.

RDMA pins memory, which counts against RLIMIT_MEMLOCK. A container inherits its limit from containerd, usually
8 MiB; CAP_IPC_LOCK in a pod would lift it for root alone (kubernetes/kubernetes#56374).

So that jobs can stay `restricted` (Pod Security), this one daemon raises the limit of containerd or CRI-O,
and of the process with which each starts a pod's containers.
"""

from typing import Any

from infra.platform.node_software.fabric_installers import NODE_SHELL
from infra.platform.programs import program

NAME = "memory-lock"


def pod() -> dict[str, Any]:
    """Return the daemon's pod. It sees the node's processes and changes their limits, and nothing else."""
    container = {
        "name": NAME,
        "image": NODE_SHELL,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", program("raise_memory_lock.sh")],
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            # prlimit(2) requires it for other users' processes and to raise a hard limit.
            "capabilities": {"drop": ["ALL"], "add": ["SYS_RESOURCE"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    return {
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        "hostPID": True,
        # Jobs on spot nodes pin memory too.
        "tolerations": [{"operator": "Exists"}],
        "containers": [container],
    }
