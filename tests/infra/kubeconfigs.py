"""A kubeconfig for stacks on existing clusters; no API server is at its address."""

from pathlib import Path

import yaml

TOKEN = "not-a-real-token"


def write_kubeconfig(path: Path, context: str = "datacenter") -> Path:
    """Write a kubeconfig with this one context."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "contexts": [{"name": context, "context": {"cluster": "there", "user": "me"}}],
        "clusters": [{"name": "there", "cluster": {"server": "https://cluster.invalid:6443"}}],
        "users": [{"name": "me", "user": {"token": TOKEN}}],
    }
    path.write_text(yaml.safe_dump(config))
    return path
