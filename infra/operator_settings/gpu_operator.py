"""Settings of NVIDIA's GPU Operator: driver and metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GpuOperatorSettings:
    """NVIDIA's operator: driver, container toolkit, device plugin, metrics."""

    installs_driver: bool
    has_service_monitor: bool
    """Whether the Prometheus operator is to read the metrics."""
