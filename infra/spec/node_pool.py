"""Node pools: how many nodes of which kind, bought how."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.spec.base import Name, Positive, Spec
from infra.spec.fabric import FabricClass

Capacity = Literal["system", "on-demand", "spot", "reserved"]


class AcceleratorSpec(Spec):
    """The accelerators of one node."""

    model: Name = Field(description="name of the accelerator; `simulated` on the local target")
    count: Annotated[Positive, Field(le=16)] = Field(description="accelerators per node")


class NodePoolSpec(Spec):
    """Nodes that are alike. A system pool runs the operators, every other pool runs jobs."""

    name: Name = Field(description="name of the pool, and of its queue flavor")
    capacity: Capacity = Field(description="how the nodes are bought")
    num_nodes: Annotated[Positive, Field(le=5000)] = Field(description="number of nodes")
    accelerator: AcceleratorSpec | None = Field(default=None, description="accelerators of each node")
    fabric: FabricClass = Field(default="none", description="fabric class of the nodes")

    @property
    def is_spot(self) -> bool:
        return self.capacity == "spot"

    @property
    def num_accelerators(self) -> int:
        """Accelerators of the whole pool."""
        return self.num_nodes * self.accelerator.count if self.accelerator else 0

    def num_slots(self, accelerators: int) -> int:
        """Count the job nodes (pods) that fit when each takes so many accelerators."""
        return self.num_nodes * (self.accelerator.count // accelerators) if self.accelerator else 0
