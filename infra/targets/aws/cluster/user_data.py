"""Renders the MIME user data of EKS nodes: local NVMe disks, locked memory for EFA, and Lustre over EFA."""

import base64
import json
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from importlib.resources import files
from typing import Any

from catalog import Machine

_BOUNDARY = "=trainyard="
_LIMITS = [
    {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576},
    {"type": "RLIMIT_MEMLOCK", "soft": 2**50, "hard": 2**50},
]
"""Resource limits of every container. The list replaces the AMI's own, so it repeats the AMI's limit of
open files (amazon-eks-ami, nodeadm/internal/containerd/base-runtime-spec.json). Locked memory: 1 PiB, more
than any machine has; nodeadm reads numbers as floating point, in which the largest 64-bit number would
overflow."""


def user_data(machine: Machine, *, uses_lustre_over_efa: bool) -> str | None:
    """Return the user data of a machine type's launch template, in base64; None if it needs none.

    Local disks become one RAID0 for images, pods' scratch space and logs. Pods may lock what memory EFA pins.
    With Lustre over EFA, the node brings up LNet on its EFA devices before anything is mounted.
    """
    parts = []
    if config := _node_config(machine):
        parts.append(_part("application", "node.eks.aws", json.dumps(config, indent=2)))
    if uses_lustre_over_efa:
        script = files("infra.targets.aws.cluster").joinpath("lnet.sh").read_text(encoding="ascii")
        parts.append(_part("text", "x-shellscript", script))
    if not parts:
        return None
    message = MIMEMultipart("mixed", boundary=_BOUNDARY, _subparts=parts)
    return base64.b64encode(message.as_bytes()).decode()


def _node_config(machine: Machine) -> dict[str, Any] | None:
    spec: dict[str, Any] = {}
    if machine.local_nvme_gib:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if machine.efa:
        spec["containerd"] = {"baseRuntimeSpec": {"process": {"rlimits": _LIMITS}}}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec} if spec else None


def _part(kind: str, subtype: str, text: str) -> MIMENonMultipart:
    part = MIMENonMultipart(kind, subtype, charset="us-ascii")
    part.set_payload(text)
    return part
