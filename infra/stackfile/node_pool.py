"""The stack file's `pools` section: machine type, accelerators, fabric, size, capacity type, reservation and
provisioning of a node pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    Field,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

import catalog
from catalog import Architecture, Machine, find_machine, find_rack
from infra.stackfile.base import Name, NonNegative, Positive, Spec, Time, matching
from infra.stackfile.fabric import FabricClass

Capacity = Literal["system", "on-demand", "spot", "reserved"]
Provisioning = Literal["flex-start", "queued"]
MAX_RUN_HOURS = 168
"""Maximum lifetime of a node from Google Cloud's Dynamic Workload Scheduler: seven days."""
Reason = Annotated[
    str,
    Field(min_length=10),
    matching("reason", r"(?s).*[^\W\d_].*", "a reason in words", "write why, in a sentence"),
]


class AcceleratorSpec(Spec):
    """The accelerators of one node."""

    model: Name = Field(description="model of the accelerator; `simulated` on the local target")
    count: Annotated[Positive, Field(le=16)] = Field(description="accelerators per node")


class ReservationSpec(Spec):
    """An existing capacity reservation. The stack uses it and never buys one."""

    id: str = Field(min_length=1, description="ID of the reservation in the cloud")
    kind: Literal["targeted", "block"] = Field(
        default="targeted",
        description="targeted: a reservation without an end; block: one with a fixed start and end",
    )
    starts: Time | None = Field(default=None, description="start of a block, in UTC")
    ends: Time | None = Field(default=None, description="end of a block, in UTC")

    @property
    def begins_at(self) -> datetime:
        """Start of a capacity block. Raises ValueError if `starts` is not set."""
        return _moment(self.starts)

    @property
    def ends_at(self) -> datetime:
        """End of a capacity block. Raises ValueError if `ends` is not set."""
        return _moment(self.ends)


def _moment(text: str | None) -> datetime:
    return datetime.fromisoformat(text or "")


class NodePoolSpec(Spec):
    """A group of identical nodes. The system pool runs operators; all other pools run jobs.

    On a cloud the machine type determines accelerators and fabric. A pool is autoscaled by `min_nodes` or by
    `provisioning`, never both; docs/pools.md lists what each cloud supports.
    """

    name: Name = Field(description="name of the pool and of its Kueue resource flavor")
    capacity: Capacity = Field(
        description="purchase option of the nodes; `system` is for the pool that runs operators"
    )
    num_nodes: Annotated[Positive, Field(le=5000)] = Field(
        description="number of nodes; the maximum if the pool is autoscaled"
    )
    min_nodes: NonNegative | None = Field(
        default=None,
        description="minimum number of nodes when the pool is autoscaled; default: `num_nodes`, without"
        " autoscaling",
    )
    accelerator: AcceleratorSpec | None = Field(
        default=None, description="accelerators of each node; default: those of the machine type"
    )
    fabric: FabricClass = Field(
        default="none",
        description="fabric class of the nodes; with `machine`, the default is that of the machine type",
    )
    machine: str | None = Field(default=None, description="machine type; required on a cloud")
    alternatives: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="further machine types that a spot pool may use"
    )
    zones: tuple[str, ...] | None = Field(
        default=None, min_length=1, description="zones of the nodes; default: all zones of the stack"
    )
    spot_waiver: Reason | None = Field(
        default=None,
        description="reason why a spot pool uses a single spot market (one machine type in one zone)",
    )
    reservation: ReservationSpec | None = Field(
        default=None, description="capacity reservation of a reserved pool"
    )
    placement: Literal["compact"] | None = Field(
        default=None, description="compact placement policy; default: set where the target recommends it"
    )
    topology: str | None = Field(default=None, description="chip topology of each TPU slice, such as 4x4")
    provisioning: Provisioning | None = Field(
        default=None,
        description="how nodes are provisioned for a job: one by one (flex-start) or all at once (queued)",
    )
    max_run_hours: Annotated[Positive, Field(le=MAX_RUN_HOURS)] | None = Field(
        default=None,
        description="maximum lifetime of a provisioned node in hours, after which Google Cloud deletes it;"
        " default: 168",
    )

    _declared: Mapping[str, Machine] = PrivateAttr(default_factory=dict)
    """Machine types that the stack declares, from the validation context (`machines`)."""

    @model_validator(mode="before")
    @classmethod
    def _from_machine(cls, data: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 -- whatever the user wrote
        """Fill in accelerator and fabric from the machine type; the target refuses an unknown type."""
        name = data.get("machine") if isinstance(data, dict) else None
        known = (info.context or {}).get("machines", {})
        machine = (known.get(name) or find_machine(name)) if isinstance(name, str) else None
        if machine is None:
            return data
        accelerator = {"model": machine.accelerator, "count": machine.num_accelerators}
        facts = {"fabric": machine.fabric, **({"accelerator": accelerator} if machine.accelerator else {})}
        return {**facts, **data}

    @model_validator(mode="after")
    def _with_declared(self, info: ValidationInfo) -> Self:
        if info.context:
            self._declared = info.context.get("machines", {})
        return self

    def find_machine(self, name: str | None) -> Machine | None:
        """Return the machine type: from the stack's declarations, else from the catalogue."""
        return (self._declared.get(name) or find_machine(name)) if name else None

    def known_machine(self, cloud: str, name: str | None = None) -> Machine:
        """Return the machine type `name`, by default the pool's. Raises UnknownNameError."""
        wanted = name or self.machine or ""
        found = self._declared.get(wanted)
        return found if found and found.cloud == cloud else catalog.machine(cloud, wanted)

    @property
    def architecture(self) -> Architecture | None:
        """CPU architecture of the nodes; None if neither machine nor accelerator determines it."""
        machine = self.find_machine(self.machine)
        if machine:
            return machine.architecture
        rack = find_rack(self.accelerator.model) if self.accelerator else None
        return rack.architecture if rack else None

    @property
    def is_spot(self) -> bool:
        return self.capacity == "spot"

    @property
    def is_autoscaled(self) -> bool:
        """Whether the autoscaler adds and removes nodes (`min_nodes` below `num_nodes`)."""
        return self.min_nodes is not None and self.min_nodes < self.num_nodes

    @property
    def num_accelerators(self) -> int:
        """Number of accelerators in the pool."""
        return self.num_nodes * self.accelerator.count if self.accelerator else 0

    def num_slots(self, accelerators: int) -> int:
        """Return how many pods fit that take `accelerators` each."""
        return self.num_nodes * (self.accelerator.count // accelerators) if self.accelerator else 0
