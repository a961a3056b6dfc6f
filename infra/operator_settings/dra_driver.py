"""Settings of NVIDIA's driver for Dynamic Resource Allocation, which serves NVLink domains."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DraDriverSettings:
    """NVIDIA's driver for Dynamic Resource Allocation: NVLink domains of nodes with Grace processors."""

    driver_root: str
    """Root of the GPU driver's files on a node: `/`, or the folder of the GPU Operator or cloud."""
    fabric: str = ""
    """Fabric class of the nodes in NVLink domains; empty where GPU Feature Discovery labels the nodes."""
    tolerates_all: bool = False
    """Whether the driver's pods run on nodes with any taint, such as those of the stack or a cloud."""
    needs_critical_quota: bool = False
    """Whether the cloud admits pods of critical priority only with a quota, as GKE does."""
