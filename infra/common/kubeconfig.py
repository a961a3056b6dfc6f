"""The form of a kubeconfig."""

from collections.abc import Mapping
from typing import Any


def kubeconfig_of(
    name: str, cluster: Mapping[str, Any], user: Mapping[str, Any], context: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a kubeconfig of one context; `context` has what it says besides its cluster and user."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {**(context or {}), "cluster": name, "user": name}}],
        "clusters": [{"name": name, "cluster": cluster}],
        "users": [{"name": name, "user": user}],
    }
