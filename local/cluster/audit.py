"""Audit policy (metadata only) of the embedded cluster, and the API server flags for its audit log."""

from pathlib import Path
from typing import Any

FILE = "audit.log"
_MAX_MIB, _BACKUPS, _DAYS = 20, 4, 90
"""Limits of the audit log: 100 MiB in five files, the older ones compressed."""

_SYSTEM_USERS = (
    "system:apiserver",
    "system:kube-controller-manager",
    "system:kube-proxy",
    "system:kube-scheduler",
)
_SYSTEM_GROUPS = ("system:nodes", "system:serviceaccounts:kube-system")
_HEARTBEATS = (
    {"group": "coordination.k8s.io", "resources": ["leases"]},
    {"group": "", "resources": ["events", "nodes/status", "pods/status"]},
    {"group": "events.k8s.io", "resources": ["events"]},
)
_READS = ("get", "list", "watch")
_SECRETS = {"group": "", "resources": ["secrets", "serviceaccounts/token"]}

POLICY: dict[str, Any] = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # One line per request, when it has been answered.
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        # Every read of a Secret is logged with its user, including reads of the cluster's components.
        {"level": "Metadata", "resources": [_SECRETS]},
        {"level": "None", "users": list(_SYSTEM_USERS), "verbs": list(_READS)},
        {"level": "None", "userGroups": list(_SYSTEM_GROUPS), "verbs": list(_READS)},
        # Operators' watches are not logged, their changes are.
        {"level": "None", "userGroups": ["system:serviceaccounts"], "verbs": ["watch"]},
        {"level": "None", "resources": list(_HEARTBEATS)},
        {"level": "None", "nonResourceURLs": ["/healthz*", "/livez*", "/readyz*", "/openapi*", "/version"]},
        {"level": "Metadata"},
    ],
}


def flags(folder: Path, policy: Path) -> tuple[str, ...]:
    """Return the API server's flags; only their owner can read the file and its folder."""
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={folder / FILE}",
        f"--audit-log-maxsize={_MAX_MIB}",
        f"--audit-log-maxbackup={_BACKUPS}",
        f"--audit-log-maxage={_DAYS}",
        "--audit-log-compress=true",
    )
