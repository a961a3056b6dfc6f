"""Lists the nodes of a stack's pools from the Kubernetes API, and reads a node's pool and readiness."""

from infra.clients.kubernetes import ApiServer, Object
from infra.common import names


def of_pools(api: ApiServer, seconds: float | None = None) -> list[Object]:
    """List the nodes that have the label of a pool; `seconds`: until an answer, with no second try.

    Raises ApiError where the user may not.
    """
    return api.items("/api/v1/nodes", {"labelSelector": names.POOL_LABEL}, seconds=seconds)


def pool_of(node: Object) -> str:
    """Return the pool that a node's label names."""
    return str(node["metadata"]["labels"][names.POOL_LABEL])


def is_ready(node: Object) -> bool:
    """Whether the node's kubelet reports Ready."""
    conditions = node["status"].get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
