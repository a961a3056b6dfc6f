"""Node pools: how many nodes of which kind, bought how."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    model_validator,
)

import catalog
from catalog import Architecture, Machine, find_machine, find_rack
from infra.spec.base import Name, NonNegative, Positive, Spec, matching, wrong
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


_TIME = r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|\+00:00)"
"""Readers of YAML that know times write them with a space and an offset."""


def _in_one_form(value: str) -> str:
    """Write a moment as AWS does; refuse a 30th of February."""
    try:
        return f"{datetime.fromisoformat(value):%Y-%m-%dT%H:%M:%SZ}"
    except ValueError as error:
        raise wrong("time", "a moment that exists", f"correct it: {error}") from None


def _as_text(value: object) -> object:
    """Take what a reader of YAML has made a time of."""
    return str(value) if isinstance(value, datetime) else value


Time = Annotated[
    str,
    BeforeValidator(_as_text),
    matching("time", _TIME, "a moment in UTC: 2026-12-01T11:30:00Z", "write it with Z at its end"),
    AfterValidator(_in_one_form),
]


class ReservationSpec(Spec):
    """Capacity that was reserved before the stack: it is used, never bought."""

    id: str = Field(min_length=1, description="the cloud's name of the reservation")
    kind: Literal["targeted", "block"] = Field(
        default="targeted",
        description="one that lasts until it is given up, or a block of days",
    )
    starts: Time | None = Field(default=None, description="when a block begins, in UTC")
    ends: Time | None = Field(default=None, description="when a block ends, in UTC")

    @property
    def begins_at(self) -> datetime:
        """When a block begins. ValueError where the file does not say it."""
        return _moment(self.starts)

    @property
    def ends_at(self) -> datetime:
        """When a block ends. ValueError where the file does not say it."""
        return _moment(self.ends)


def _moment(text: str | None) -> datetime:
    return datetime.fromisoformat(text or "")


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

    _declared: Mapping[str, Machine] = PrivateAttr(default_factory=dict)
    """Machine types that the stack declares; who reads a stack gives them as `machines` of the context."""

    @model_validator(mode="before")
    @classmethod
    def _from_machine(cls, data: Any, info: ValidationInfo) -> Any:  # noqa: ANN401 -- whatever the user wrote
        """Fill in what is known of the machine; an unknown one is the target's to refuse."""
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
        """Return the machine type of that name, as the stack declares it or else the catalogue has it."""
        return (self._declared.get(name) or find_machine(name)) if name else None

    def known_machine(self, cloud: str, name: str | None = None) -> Machine:
        """Return the pool's machine type, or another one of that name; UnknownNameError where none is."""
        wanted = name or self.machine or ""
        found = self._declared.get(wanted)
        return found if found and found.cloud == cloud else catalog.machine(cloud, wanted)

    @property
    def architecture(self) -> Architecture | None:
        """Of the nodes' processors, as far as machine or accelerator say it; None: not known here."""
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
        """Whether nodes come and go with the jobs that want them."""
        return self.min_nodes is not None and self.min_nodes < self.num_nodes

    @property
    def num_accelerators(self) -> int:
        """Accelerators of the whole pool."""
        return self.num_nodes * self.accelerator.count if self.accelerator else 0

    def num_slots(self, accelerators: int) -> int:
        """Count the job nodes (pods) that fit when each takes so many accelerators."""
        return self.num_nodes * (self.accelerator.count // accelerators) if self.accelerator else 0
