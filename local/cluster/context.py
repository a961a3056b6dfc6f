"""`ClusterContext`: paths, addresses, credentials and artifacts that all parts of a cluster share."""

from dataclasses import dataclass

from local.cluster.addresses import AddressPlan
from local.cluster.contracts import ArtifactFinder
from local.cluster.credentials import Credentials
from local.cluster.layout import Layout


@dataclass(frozen=True)
class ClusterContext:
    """Paths, addresses, credentials and artifacts of a cluster."""

    layout: Layout
    plan: AddressPlan
    credentials: Credentials
    artifacts: ArtifactFinder

    def binary(self, name: str) -> str:
        """Path of a pinned binary."""
        return str(self.artifacts.path(f"binary/{name}"))

    def client(self, user: str, *groups: str) -> str:
        """Path of a kubeconfig for this user."""
        return str(self.credentials.client(user, *groups))
