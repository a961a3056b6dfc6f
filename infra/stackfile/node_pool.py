"""The stack file's `pools` section: machine type, accelerators, fabric, size, capacity type, reservation and
provisioning of a node pool.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

import catalog
from catalog import Architecture, Machine, find_machine, find_rack
from infra.stackfile.base import Name, Positive, Quantity, Spec, Time, matching, wrong
from infra.stackfile.fabric import FabricClass

Capacity = Literal["on-demand", "spot", "reserved"]
Provisioning = Literal["node-by-node", "all-at-once"]
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


@dataclass(frozen=True)
class Nodes:
    """Number of a pool's nodes: `most`, and `least` where the pool is autoscaled."""

    most: int
    least: int | None = None

    def __str__(self) -> str:
        return str(self.most) if self.least is None else f"{self.least}..{self.most}"


MAX_NODES = 5000
RANGE = r"^[0-9]+\.\.[0-9]+$"
"""Pattern of the sizes of an autoscaled pool."""


def _nodes(value: object) -> object:
    """Read `4` and `0..4`."""
    written = re.fullmatch(r"([0-9]{1,4})\.\.([0-9]{1,4})", value) if isinstance(value, str) else None
    least, most = map(int, written.groups()) if written else (None, value)
    if isinstance(value, Nodes):
        return value
    if not isinstance(most, int) or isinstance(most, bool) or not 1 <= most <= MAX_NODES:
        allowed = f"a number of nodes, 1 to {MAX_NODES}, or a range such as 0..4"
        raise wrong("nodes", allowed, "write 4, or 0..4 for an autoscaled pool")
    if least is not None and least > most:
        raise wrong("nodes", "the minimum first, then the maximum", f"write {most}..{least}")
    return Nodes(most, least)


NodeRange = Annotated[
    Nodes,
    PlainValidator(_nodes),
    PlainSerializer(lambda value: value.most if value.least is None else str(value)),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "integer", "minimum": 1, "maximum": MAX_NODES},
                {"type": "string", "pattern": RANGE},
            ]
        }
    ),
]


class ReservationSpec(Spec):
    """An existing capacity reservation. The stack uses it and never buys one."""

    id: str = Field(min_length=1, description="ID of the reservation in the cloud")
    kind: Literal["targeted", "block"] = Field(
        default="targeted",
        description="targeted: a reservation without an end; block: one with a fixed start and end",
    )
    placement_group: str | None = Field(
        default=None, min_length=1, description="EC2: name of the cluster placement group that it was made in"
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

    On a cloud the machine type determines accelerators and fabric. A pool is autoscaled by a range
    of `nodes` or by `provisioning`, never both; docs/pools.md lists what each cloud supports.
    """

    DEFAULTED: ClassVar = frozenset({"name", "nodes"})

    name: Name = Field(
        description="name of the pool and of its Kueue resource flavor; default: its role, else its capacity"
    )
    role: Literal["system"] | None = Field(
        default=None, description="`system` for the pool that runs operators; default: the pool runs jobs"
    )
    capacity: Capacity = Field(default="on-demand", description="purchase option of the nodes")
    nodes: NodeRange = Field(
        description="number of nodes; of an autoscaled pool the minimum and the maximum: `0..4`; default: 1"
    )
    accelerator: AcceleratorSpec | None = Field(
        default=None, description="accelerators of each node; default: those of the machine type"
    )
    fabric: FabricClass = Field(
        default="tcp",
        description="fabric class of the nodes; with `machine`, the default is that of the machine type",
    )
    machine: str | None = Field(
        default=None, description="machine type; required on a cloud, except of the system pool"
    )
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
    checkpoint_seconds: Annotated[float, Field(gt=0)] | None = Field(
        default=None,
        description="seconds that a checkpoint takes, as guessed or as measured by a job; must fit into the"
        " preemption notice of a spot pool",
    )
    reservation: ReservationSpec | None = Field(
        default=None, description="capacity reservation of a reserved pool"
    )
    placement: Literal["compact"] | None = Field(
        default=None, description="compact placement policy; default: set where the target recommends it"
    )
    topology: str | None = Field(default=None, description="chip topology of each TPU slice, such as 4x4")
    provisioning: Provisioning | None = Field(
        default=None, description="how nodes are provisioned for a job: one by one, or all at once"
    )
    max_run_hours: Annotated[int, Quantity("h", 1, MAX_RUN_HOURS)] | None = Field(
        default=None,
        alias="max_run",
        description="maximum lifetime of a provisioned node, after which Google Cloud deletes it;"
        " default: 168h",
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
    def is_system(self) -> bool:
        """Whether the pool runs operators, and no jobs."""
        return self.role == "system"

    @property
    def label(self) -> str:
        """Value of the nodes' capacity label."""
        return self.role or self.capacity

    @property
    def num_nodes(self) -> int:
        """Number of nodes; the maximum of an autoscaled pool."""
        return self.nodes.most

    @property
    def min_nodes(self) -> int | None:
        """Minimum number of nodes; None for a pool of a fixed size."""
        return self.nodes.least

    @property
    def is_spot(self) -> bool:
        return self.capacity == "spot"

    @property
    def is_autoscaled(self) -> bool:
        """Whether the autoscaler adds and removes nodes: `nodes` is a range."""
        return self.min_nodes is not None and self.min_nodes < self.num_nodes

    @property
    def num_accelerators(self) -> int:
        """Number of accelerators in the pool."""
        return self.num_nodes * self.accelerator.count if self.accelerator else 0

    def num_slots(self, accelerators: int) -> int:
        """Return how many pods fit that take `accelerators` each."""
        return self.num_nodes * (self.accelerator.count // accelerators) if self.accelerator else 0
