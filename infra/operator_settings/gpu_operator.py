"""Settings of NVIDIA's GPU Operator: driver and metrics."""

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuOperatorSettings:
    """NVIDIA's operator: driver, container toolkit, device plugin, metrics."""

    installs_driver: bool
    has_service_monitor: bool
    """Whether the Prometheus operator is to read the metrics."""
    container_runtime: str = "containerd"
    """Whose containerd runs the nodes' containers: the system's (`containerd`), or a distribution's."""
