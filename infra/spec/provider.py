"""What the specs of all targets share; `kind` tells them apart."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, ClassVar

from pydantic import Field

from infra.artifacts import kubernetes_version
from infra.spec.base import Spec, one_of
from infra.spec.storage import FilesystemSpec

ProviderKind = str
"""Name of a target: those that there are stand in `infra/targets/registry.py`."""
KubernetesVersion = Annotated[str, one_of(lambda: [kubernetes_version()])]
"""The version that this release was tested with, as `versions.yaml` pins it; charts are rendered for it."""


class ContextCluster(Spec):
    """A cluster that exists, reached through a context of the user's kubeconfig."""

    context: str = Field(min_length=1, description="name of a kubeconfig context")


@dataclass(frozen=True)
class ClusterOnHost:
    """What a cluster of processes on this host takes of it."""

    node_cidr: IPv4Network
    data_dir: str | None
    """None: the stack's own folder below the state."""


class ProviderSpec(Spec):
    """Base of each target's own spec."""

    NO_SNAPSHOTS: ClassVar[str] = FilesystemSpec.NO_SNAPSHOTS
    """The same of a target without a choice of filesystems."""

    kind: ProviderKind = Field(description="which target")
    kubernetes_version: KubernetesVersion = Field(
        default_factory=kubernetes_version, description="version of the control plane"
    )

    @property
    def place(self) -> str:
        """Region, or zone where that is what prices go by; empty for a target that is in no cloud."""
        return str(getattr(self, "region", "") or getattr(self, "zone", ""))

    @property
    def on_host(self) -> ClusterOnHost | None:
        """What the cluster takes of this host; None for one that is made of no processes here."""
        return None

    @property
    def whereabouts(self) -> str:
        """Its place, or the country of machines that are in no cloud; empty where the stack says neither."""
        return self.place or str(getattr(self, "country", None) or "")
