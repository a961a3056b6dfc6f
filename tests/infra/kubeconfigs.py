"""A kubeconfig for stacks on existing clusters; no API server is at its address."""

from pathlib import Path

import yaml

from tests.servers import kubeconfig_of

TOKEN = "not-a-real-token"


def write_kubeconfig(path: Path) -> Path:
    """Write a kubeconfig with the context `datacenter`."""
    config = kubeconfig_of("https://cluster.invalid:6443", {"token": TOKEN}, context="datacenter")
    path.write_text(yaml.safe_dump(config))
    return path
