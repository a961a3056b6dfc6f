"""Settings of NVIDIA's driver for Dynamic Resource Allocation."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class DraDriverSettings:
    """NVIDIA's driver for Dynamic Resource Allocation: NVLink domains of nodes with Grace processors."""

    driver_root: str
    """Path of the GPU driver on a node: `/`, or where the GPU Operator or the cloud installs the driver."""
    fabric: str = ""
    """Fabric class of the nodes in domains; empty: GPU Feature Discovery has labelled them."""
    tolerates_all: bool = False
    """Whether it runs on nodes with any taint, such as the stack's own and those of a cloud."""
    needs_critical_quota: bool = False
    """Whether the cloud admits pods of critical priority by a quota alone, as GKE does."""
