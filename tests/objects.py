"""Kubernetes objects in the form that users write."""

from typing import Any

Object = dict[str, Any]


def thing(api_version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Object:
    """Return an object; `labels` and `annotations` become those of its metadata."""
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    metadata |= {key: more.pop(key) for key in ("labels", "annotations") if key in more}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}
