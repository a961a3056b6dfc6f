"""Machine types that a stack file declares, in addition to those of the catalogue."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

import catalog
from catalog import Architecture, EfaLayout, Machine, Nics
from infra.stackfile.base import Boolean, Gibibytes, Name, NonNegative, Positive, Spec, one_of, wrong
from infra.stackfile.fabric import PLAIN, FabricClass

EFA = "vpc.amazonaws.com/efa"
AcceleratorModel = Annotated[
    Name, one_of(lambda: [each.name for each in catalog.accelerators() if not each.simulated])
]


class MachineAcceleratorSpec(Spec):
    """The accelerators of a machine type."""

    model: AcceleratorModel = Field(description="model of the accelerator, as in the catalogue")
    count: Annotated[Positive, Field(le=16)] = Field(description="number of accelerators")


class NicsSpec(Spec):
    """The NICs of a machine type: those of its fabric, else the ordinary ones."""

    count: Positive = Field(description="number of NICs")
    gbps: Positive = Field(description="bandwidth of each NIC, in Gb/s")


class EfaSpec(Spec):
    """EFA interfaces of an EC2 machine type (NetworkInfo of DescribeInstanceTypes)."""

    network_cards: Positive = Field(description="number of network cards")
    interfaces: Positive = Field(description="number of EFA interfaces")
    card_0: Boolean = Field(default=True, description="whether network card 0 supports EFA")
    cards: tuple[NonNegative, ...] = Field(
        default=(), description="indexes of the network cards with an EFA interface; default: the first ones"
    )

    @model_validator(mode="after")
    def _fits(self) -> "EfaSpec":
        try:
            self.layout()
        except ValueError as error:
            raise wrong("efa", "EFA interfaces that EC2 supports", f"correct it: {error}") from None
        return self

    def layout(self) -> EfaLayout:
        """Return it in the catalogue's form; ValueError if its NICs cannot have that many interfaces."""
        return EfaLayout(**dict(self))


class MachineSpec(Spec):
    """Properties of a machine type; in this stack they replace the catalogue's."""

    vcpus: Positive = Field(description="number of vCPUs")
    memory_gib: Gibibytes = Field(alias="memory", description="memory")
    accelerator: MachineAcceleratorSpec | None = Field(
        default=None, description="accelerators; default: none"
    )
    fabric: FabricClass = Field(default="tcp", description="fabric class, as in the catalogue")
    architecture: Architecture = Field(default="amd64", description="CPU architecture")
    local_nvme_gib: Gibibytes | None = Field(
        default=None, alias="local_nvme", description="total size of the local NVMe disks; default: none"
    )
    nics: NicsSpec | None = Field(default=None, description="NICs")
    efa: EfaSpec | None = Field(default=None, description="EC2: EFA interfaces")
    accelerator_type: str | None = Field(
        default=None,
        min_length=1,
        description="Google Cloud: name of the accelerator type, such as nvidia-b200",
    )
    topologies: tuple[str, ...] = Field(
        default=(),
        description="Google Cloud: chip topologies of the TPU slices that the machine type supports",
    )

    @model_validator(mode="after")
    def _agrees(self) -> "MachineSpec":
        """A class gives pods the NICs of such machines, and the resource of their accelerators."""
        fabric = catalog.fabric(self.fabric)
        if self.accelerator is None:
            if self.fabric != PLAIN:
                raise wrong("machine_fabric", "tcp on a machine without accelerators", "remove it", "fabric")
            return self
        resource = catalog.accelerator(self.accelerator.model).resource
        if fabric.name != PLAIN and fabric.accelerator_resource != resource:
            allowed = f"a class of machines with {resource}"
            raise wrong("machine_fabric", allowed, "name such a class, or tcp", "fabric")
        asked = fabric.resources.get(EFA, fabric.claim.count if fabric.claim and "efa" in fabric.name else 0)
        if asked and (self.efa is None or self.efa.interfaces != asked):
            allowed = f"`efa:` with {asked} interfaces: as many as pods on {fabric.name} request"
            below = ("efa",) if self.efa else ()
            raise wrong("machine_efa", allowed, "describe the machine's network cards under `efa:`", *below)
        return self

    def machine(self, name: str, cloud: str) -> Machine:
        """Return it as a machine of the catalogue: without prices, regions or ways to buy it."""
        return Machine(
            cloud=cloud,
            name=name,
            accelerator=self.accelerator.model if self.accelerator else None,
            num_accelerators=self.accelerator.count if self.accelerator else 0,
            accelerator_type=self.accelerator_type,
            vcpus=self.vcpus,
            memory_gib=self.memory_gib,
            local_nvme_gib=self.local_nvme_gib,
            nics=Nics(count=self.nics.count, gbps=self.nics.gbps) if self.nics else None,
            efa=self.efa.layout() if self.efa else None,
            fabric=self.fabric,
            topologies=self.topologies,
            architecture=self.architecture,
            sources=(),
        )


def declared(data: Any) -> dict[str, Machine]:  # noqa: ANN401 -- whatever the user wrote
    """Return the machine types that a stack's data declare; invalid ones are skipped here."""
    target = data.get("target") if isinstance(data, Mapping) else None
    if not isinstance(target, Mapping) or not isinstance(target.get("machines"), Mapping):
        return {}
    found = {}
    for name, facts in target["machines"].items():
        try:
            found[str(name)] = MachineSpec.model_validate(facts).machine(str(name), str(target.get("kind")))
        except ValidationError:
            continue  # the target's spec reports it
    return found
