"""What nodes are told at boot, as the MIME text that EKS's AMIs read."""

from __future__ import annotations

import base64
import json
from email.mime.multipart import MIMEMultipart
from email.mime.nonmultipart import MIMENonMultipart
from importlib.resources import files
from typing import Any

from catalog import Machine

_BOUNDARY = "=trainyard="


def user_data(machine: Machine, *, lustre_over_efa: bool) -> str | None:
    """Return the user data of a machine's launch template, in base64; None where there is nothing to say.

    Local disks become one RAID0 for images, pods' scratch space and logs. With Lustre over EFA, the node
    brings up LNet on its EFA devices before anything is mounted.
    """
    parts = []
    if machine.local_nvme_gib:
        parts.append(_part("application", "node.eks.aws", json.dumps(_node_config(), indent=2)))
    if lustre_over_efa:
        script = files("infra.targets.aws.cluster").joinpath("lnet.sh").read_text(encoding="ascii")
        parts.append(_part("text", "x-shellscript", script))
    if not parts:
        return None
    message = MIMEMultipart("mixed", boundary=_BOUNDARY, _subparts=parts)
    return base64.b64encode(message.as_bytes()).decode()


def _node_config() -> dict[str, Any]:
    return {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {"instance": {"localStorage": {"strategy": "RAID0"}}},
    }


def _part(kind: str, subtype: str, text: str) -> MIMENonMultipart:
    part = MIMENonMultipart(kind, subtype, charset="us-ascii")
    part.set_payload(text)
    return part
