"""Settings of AMD's GPU Operator: images, metrics, virtual functions and the kernel driver."""

from dataclasses import dataclass


@dataclass(frozen=True)
class AmdOperatorSettings:
    """AMD's operator, with images that the stack pins."""

    device_plugin: str
    node_labeller: str
    metrics_exporter: str
    utils: str
    has_service_monitor: bool
    has_virtual_functions: bool = False
    """Whether the GPUs are virtual functions, as in a virtual machine."""
    driver_for: tuple[str, ...] = ()
    """Accelerators whose nodes need the kernel driver; empty where the node image has the driver."""
