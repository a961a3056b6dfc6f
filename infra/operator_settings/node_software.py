"""Settings of the software that the platform installs on nodes (vendors' operators and drivers), and of
registry mirrors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from infra.operator_settings.amd_operator import AmdOperatorSettings
from infra.operator_settings.dra_driver import DraDriverSettings
from infra.operator_settings.gpu_operator import GpuOperatorSettings
from infra.operator_settings.network_operator import NetworkOperatorSettings
from infra.stackfile.fabric import FabricClass
from infra.stackfile.mirror import MirrorSpec


@dataclass(frozen=True)
class Mirror:
    """A registry inside of an air gap."""

    registry: str
    """Registry and path that prefix every image."""
    charts: str
    """`oci://…` URL of the mirrored charts."""

    def image(self, reference: str) -> str:
        """Return where the mirror has an image; one of the mirror's host exists there already."""
        host = self.registry.partition("/")[0]
        return reference if reference.startswith(f"{host}/") else f"{self.registry}/{reference}"


def mirror_of(spec: MirrorSpec | None) -> Mirror | None:
    """Return the mirror that a stack names."""
    return Mirror(spec.registry, spec.charts) if spec else None


@dataclass(frozen=True)
class NodeSoftwareSettings:
    """Software that vendors' operators install on the nodes, where the cloud does not."""

    network_operator: NetworkOperatorSettings | None = None
    gpu_operator: GpuOperatorSettings | None = None
    dra_driver: DraDriverSettings | None = None
    amd_operator: AmdOperatorSettings | None = None
    installs_nfs_driver: bool = False
    efa_resource_claims: tuple[FabricClass, ...] = ()
    """Fabric classes whose EFA devices pods claim by EKS's DRA driver."""
    installs_lustre_driver: bool = False
    """Whether the CSI driver of Azure Managed Lustre is installed."""
    installs_nfd: bool = True
    """Whether Node Feature Discovery comes with the first operator; False where the cluster has it."""
    tolerates_all: bool = False
    """Whether the operators' pods run on nodes with any taint, such as spot nodes."""
    mirror: Mirror | None = None
    registries: Mapping[str, str] = field(default_factory=dict)
    """Registry host in pinned references of a cloud's images → registry host that these nodes use."""
    node_os: str = ""
    """Operating system of the nodes, as in tags of driver images: `ubuntu24.04`."""

    @property
    def installs_any(self) -> bool:
        """Whether any operator or driver is to be installed."""
        drivers = (
            self.installs_nfs_driver
            or self.installs_lustre_driver
            or self.dra_driver
            or self.efa_resource_claims
        )
        return bool(self.network_operator or self.gpu_operator or self.amd_operator or drivers)

    def image(self, reference: str) -> str:
        """Return the reference by which the nodes pull an image: a region's registry, or the mirror."""
        host, slash, path = reference.partition("/")
        reference = f"{self.registries.get(host, host)}{slash}{path}"
        return self.mirror.image(reference) if self.mirror else reference
