"""Node pools: how many nodes of which kind, bought how."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from catalog import Architecture, find_machine, find_rack
from infra.spec.base import Name, NonNegative, Positive, Spec, matching
from infra.spec.fabric import FabricClass

Capacity = Literal["system", "on-demand", "spot", "reserved"]
Provisioning = Literal["flex-start", "queued"]
MAX_RUN_HOURS = 168
"""Google's Dynamic Workload Scheduler gives a node for seven days at most."""
Reason = Annotated[
    str,
    Field(min_length=10),
    matching("reason", r"(?s).*[^\W\d_].*", "a reason in words", "write why, in a sentence"),
]


class AcceleratorSpec(Spec):
    """The accelerators of one node."""

    model: Name = Field(description="name of the accelerator; `simulated` on the local target")
    count: Annotated[Positive, Field(le=16)] = Field(description="accelerators per node")


class ReservationSpec(Spec):
    """Capacity that was reserved before the stack: it is used, never bought."""

    id: str = Field(min_length=1, description="the cloud's name of the reservation")
    kind: Literal["targeted", "block"] = Field(
        default="targeted",
        description="one that lasts until it is given up, or a block of days",
    )


class NodePoolSpec(Spec):
    """Nodes that are alike. A system pool runs the operators, every other pool runs jobs.

    On a cloud the machine says which accelerators and fabric the nodes have. `min_nodes` is how few of them
    stay, `provisioning` how nodes come that do not: a cloud takes one of the two, by docs/pools.md.
    """

    name: Name = Field(description="name of the pool, and of its queue flavor")
    capacity: Capacity = Field(description="how the nodes are bought")
    num_nodes: Annotated[Positive, Field(le=5000)] = Field(description="number of nodes")
    min_nodes: NonNegative | None = Field(
        default=None,
        description="nodes that stay while no job waits, the others come and go; left out: all stay",
    )
    accelerator: AcceleratorSpec | None = Field(default=None, description="accelerators of each node")
    fabric: FabricClass = Field(default="none", description="fabric class of the nodes")
    machine: str | None = Field(default=None, description="machine type; a cloud's pool has one")
    alternatives: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="machine types that a spot pool buys beside `machine`"
    )
    zones: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="zones of the nodes; left out: all zones of the stack"
    )
    spot_waiver: Reason | None = Field(
        default=None, description="why a spot pool is in one market (machine type and zone) only"
    )
    reservation: ReservationSpec | None = Field(default=None, description="what a reserved pool draws on")
    placement: Literal["compact"] | None = Field(
        default=None, description="nodes close to each other; left out: where it belongs"
    )
    topology: str | None = Field(default=None, description="chips of each TPU slice, such as 4x4")
    provisioning: Provisioning | None = Field(
        default=None,
        description="num_nodes at most come on call: one by one (flex-start), or all of a job (queued)",
    )
    max_run_hours: Annotated[Positive, Field(le=MAX_RUN_HOURS)] | None = Field(
        default=None, description="hours after which Google takes nodes on call; left out: a week"
    )

    @model_validator(mode="before")
    @classmethod
    def _from_machine(cls, data: Any) -> Any:  # noqa: ANN401 -- pydantic hands over whatever the user wrote
        """Fill in what the catalogue knows of the machine; an unknown one is the target's to refuse."""
        name = data.get("machine") if isinstance(data, dict) else None
        machine = find_machine(name) if isinstance(name, str) else None
        if machine is None:
            return data
        accelerator = {"model": machine.accelerator, "count": machine.num_accelerators}
        known = {"fabric": machine.fabric, **({"accelerator": accelerator} if machine.accelerator else {})}
        return {**known, **data}

    @property
    def architecture(self) -> Architecture | None:
        """Of the nodes' processors, as far as machine or accelerator say it; None: not known here."""
        machine = find_machine(self.machine) if self.machine else None
        if machine:
            return machine.architecture
        rack = find_rack(self.accelerator.model) if self.accelerator else None
        return rack.architecture if rack else None

    @property
    def is_spot(self) -> bool:
        return self.capacity == "spot"

    @property
    def is_autoscaled(self) -> bool:
        """Whether nodes come and go with the jobs that want them."""
        return self.min_nodes is not None and self.min_nodes < self.num_nodes

    @property
    def num_accelerators(self) -> int:
        """Accelerators of the whole pool."""
        return self.num_nodes * self.accelerator.count if self.accelerator else 0

    def num_slots(self, accelerators: int) -> int:
        """Count the job nodes (pods) that fit when each takes so many accelerators."""
        return self.num_nodes * (self.accelerator.count // accelerators) if self.accelerator else 0
