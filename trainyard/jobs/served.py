"""Tells a kind that a cluster does not serve from one of which there are no objects."""

from infra.clients.kubernetes import ApiServer
from infra.errors import Problem, TrainyardError

_LEAST = {
    "kueue.x-k8s.io": ("Kueue", "0.15"),
    "jobset.x-k8s.io": ("JobSet", "0.10"),
    "trainer.kubeflow.org": ("Kubeflow Trainer", "2.2"),
}
"""API group → its operator, and the first release that serves what the commands read."""


def check_served(api: ApiServer, path: str, *, needed: bool = False) -> None:
    """Explain a list that was not found (404): its group may be served in other versions only.

    Args:
        api: the cluster's API server.
        path: path of the list: `/apis/GROUP/VERSION/…`.
        needed: whether a cluster without the group is an error, too.

    Raises:
        TrainyardError: the operator's release is another one, or it is missing and needed.
    """
    _, root, group, version, *_ = path.split("/")
    if root != "apis":
        return
    operator, least = _LEAST.get(group, (group, ""))
    found = api.find(f"/apis/{group}")
    versions = [each["version"] for each in (found or {}).get("versions") or ()]
    allowed = f"{version}{f', of {operator} {least} or newer' if least else ''}"
    fix = f"ask the platform team for {operator} {least or 'with this version'}"
    if versions and version not in versions:
        got = f"its {operator} serves {', '.join(versions)}"
        raise TrainyardError([Problem("the cluster", got, allowed, fix)])
    if needed and not versions:
        raise TrainyardError([Problem("the cluster", f"it has no {operator}", allowed, fix)])
