"""Computes the share of a node's CPUs and memory that comes with each accelerator."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.stackfile.node_pool import NodePoolSpec

_GIVEN = 0.8
"""Share of a node's CPUs and memory for jobs; the rest is for the kubelet, the system and the platform's
daemons. The reserve is larger than the clouds' own on nodes with accelerators (GKE: 255 MiB to 2 % of
large memories and 0.25 to 1 % of processors; EKS 11 MiB per pod and 100 MiB; AKS 20 MiB per pod, at most
25 %)."""
_CPUS, _MEMORY_GIB = 0.25, 0.5
"""Minimum per accelerator, where the machine type is unknown: enough that a pod is not evicted first."""


@dataclass(frozen=True)
class Share:
    """Share of CPUs and memory that a pod requests with each accelerator."""

    cpus: float = _CPUS
    memory_gib: float = _MEMORY_GIB

    def requests(self, accelerators: int) -> dict[str, str]:
        """Return the CPUs and memory for a number of accelerators, as normalized Kubernetes quantities.

        A TrainJob's trainer is immutable, and Kueue writes it back: a quantity must have its normalized form.
        """
        milli, mebi = int(self.cpus * accelerators * 1000), int(self.memory_gib * accelerators * 1024)
        return {"cpu": str(milli // 1000) if milli % 1000 == 0 else f"{milli}m", "memory": quantity(mebi)}


def share_of_pool(pool: "NodePoolSpec") -> Share:
    """Return what fits on a pool; small where its machine is not known."""
    machine = pool.find_machine(pool.machine)
    if machine is None or machine.memory_gib is None or pool.accelerator is None:
        return Share()
    number = pool.accelerator.count
    return Share(_floor(_GIVEN * machine.vcpus / number), _floor(_GIVEN * float(machine.memory_gib) / number))


def _floor(value: float) -> float:
    """Rounded down to a quarter, to be readable."""
    return math.floor(value * 4) / 4


def quantity(mebi: int) -> str:
    """Return so many MiB as Kubernetes writes them: in the largest unit that divides them."""
    units = ["Mi", "Gi", "Ti"]
    while mebi % 1024 == 0 and len(units) > 1 and mebi:
        mebi, units = mebi // 1024, units[1:]
    return f"{mebi}{units[0]}"


def canonical(text: str) -> str:
    """Return a quantity as Kubernetes writes it, of one that is in MiB; any other as it is."""
    return quantity(int(text.removesuffix("Mi"))) if text.endswith("Mi") else text
