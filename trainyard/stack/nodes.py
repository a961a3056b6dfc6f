"""Lists the nodes of a stack's pools from the Kubernetes API, and reads a node's pool and readiness."""

from __future__ import annotations

from typing import Any

from kubernetes import client

from infra.common import names


def of_pools(api: client.ApiClient, **options: Any) -> list[Any]:  # noqa: ANN401 -- of the client's call
    """List the nodes that have the label of a pool. Raises ApiException where the user may not."""
    core: Any = client.CoreV1Api(api)
    found: list[Any] = core.list_node(label_selector=names.POOL_LABEL, **options).items
    return found


def pool_of(node: Any) -> str:  # noqa: ANN401 -- the Kubernetes client has no types
    """Return the pool that a node's label names."""
    return str(node.metadata.labels[names.POOL_LABEL])


def is_ready(node: Any) -> bool:  # noqa: ANN401 -- the Kubernetes client has no types
    """Whether the node's kubelet reports Ready."""
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ())
