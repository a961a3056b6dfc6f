"""Shapes of the catalogue's data files. A figure that no source gives is None, never a guess."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Cloud = Literal["aws", "gcp", "azure", "coreweave"]
"""Targets that sell machines; `local` simulates accelerators, `onprem` has its owner's."""
Architecture = Literal["amd64", "arm64"]
Purchase = Literal["on-demand", "spot", "capacity-block"]
"""Ways to buy a machine that its cloud lists for it; reservations of on-demand machines are not listed."""
Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(gt=0)]
UsdPerHour = Annotated[Decimal, Field(gt=0)]


class Record(BaseModel):
    """A row of a data file: frozen, and a key that nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class Source(Record):
    """Where figures come from, and the day that they are of (or were read, where the source has no day)."""

    title: Name
    url: Annotated[str, Field(pattern=r"^https://")]
    date: date


def _with_sources(node: object, sources: Mapping[str, object]) -> object:
    """Put the sources themselves where rows give their keys."""
    if isinstance(node, list):
        return [_with_sources(item, sources) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _source(value, sources) if key in ("source", "sources") else _with_sources(value, sources)
        for key, value in node.items()
    }


def _source(key: object, sources: Mapping[str, object]) -> object:
    if isinstance(key, list):
        return [_source(item, sources) for item in key]
    if not isinstance(key, str) or key not in sources:
        raise ValueError(f"no such source in the file: {key!r}")
    return sources[key]


class DataFile(Record):
    """What every data file has: its sources. Rows name them by key and are read with the source itself."""

    sources: Annotated[dict[Name, Source], Field(min_length=1)]

    @model_validator(mode="before")
    @classmethod
    def _resolve_sources(cls, data: dict[str, Any]) -> dict[str, Any]:
        sources = data.get("sources", {})
        rows = {key: _with_sources(value, sources) for key, value in data.items() if key != "sources"}
        return {"sources": sources, **rows}


class Rack(Record):
    """The rack that an accelerator is sold in: its machines are one NVLink domain."""

    machines: Count
    accelerators: Count
    """Of one machine."""
    architecture: Architecture
    """Of the machines' processors, which sit on the accelerators' boards."""
    source: Source

    @property
    def nvlink_domain(self) -> int:
        """Accelerators of the rack."""
        return self.machines * self.accelerators


class Accelerator(Record):
    """A GPU or TPU model."""

    name: Name
    title: Name
    vendor: Literal["nvidia", "amd", "google", "trainyard"]
    resource: Name
    """The extended resource that a pod asks for."""
    memory_gib: Amount | None = None
    """Memory of one accelerator in GiB, as its cloud reports it; None for a simulated one."""
    rack: Rack | None = None
    """None where NVLink ends at the machine."""
    source: Source

    @property
    def simulated(self) -> bool:
        """Whether it is only advertised: nothing computes on it."""
        return self.vendor == "trainyard"


class HostPath(Record):
    """A path of the node that a container has."""

    mount: Name
    """Where the container has it."""
    writable: bool = False


class Claim(Record):
    """Devices that a pod has by Dynamic Resource Allocation."""

    device_class: Name
    count: Count


class Daemon(Record):
    """A container that runs beside the training process for as long as that does."""

    name: Name
    image: Name
    command: tuple[Name, ...]
    environment: dict[Name, str] = {}
    capabilities: tuple[Name, ...] = ()
    host_paths: dict[Name, HostPath] = {}
    annotations: dict[Name, str] = {}
    """Of the pod."""


class NumaNode(Record):
    """A processor of a machine, and what hangs below it."""

    affinity: Name
    """Its cores, as a mask in groups of eight hexadecimal digits (sysfs: local_cpus)."""
    switches: tuple[tuple[tuple[Name, Name], ...], ...]
    """Per PCIe switch the pairs of GPU and card behind it, each by its PCI domain: `0001`, `0101`."""


class NcclTopology(Record):
    """What hangs where in a virtual machine, which hides its PCIe switches from NCCL."""

    vendor: Name
    family: Count
    model: Count
    """Of the processors (CPUID)."""
    link: Name
    """Speed of a PCIe lane, of which each device has 16."""
    numa: tuple[NumaNode, ...]
    source: Source


class Fabric(Record):
    """A fabric class: what a job's pods need so that their ranks talk over the fabric and not over TCP.

    One class has one resource name and count, one environment, one set of volumes: one training runtime.
    """

    name: Name
    title: Name
    variant_of: Name | None = None
    """The class of the same machines, where this one reaches the same network in another way."""
    accelerator_resource: Name = "nvidia.com/gpu"
    """Extended resource of the accelerators that it joins."""
    frameworks: tuple[Name, ...] = ("torch", "mpi")
    """Frameworks that have a training runtime on it."""
    resources: dict[Name, Count] = {}
    """Extended resources of a pod that takes a whole machine."""
    environment: dict[Name, str] = {}
    unset: tuple[Name, ...] = ()
    """Variables that must not be set: they override what the fabric's plugin works out by itself."""
    setup: str = ""
    """Shell line (bash) that sets what NCCL needs, where that follows from what is on the node."""
    capabilities: tuple[Name, ...] = ()
    """Linux capabilities that the container adds."""
    hugepages_2mi_mib: Count | None = None
    host_paths: dict[Name, HostPath] = {}
    """Path on the node → where the container has it."""
    interfaces: dict[Name, Name] = {}
    """Extra interface in the pod → name of the Kubernetes Network behind it."""
    attachments: tuple[Name, ...] = ()
    """Secondary networks (Multus), an interface of the pod each: `namespace/name`."""
    claim: Claim | None = None
    topology: NcclTopology | None = None
    daemon: Daemon | None = None
    nvlink_domain: Count | None = None
    """Accelerators that share one NVLink domain across machines; pods claim a place in it."""
    source: Source

    @property
    def pod_resources(self) -> dict[str, int | str]:
        """What a pod that takes a whole machine asks for besides its accelerators."""
        pages = {"hugepages-2Mi": f"{self.hugepages_2mi_mib}Mi"} if self.hugepages_2mi_mib else {}
        return {**self.resources, **pages}


class Nics(Record):
    """Network cards of a machine: those of the fabric, else its ordinary ones (peak bandwidth)."""

    count: Count
    gbps: Amount


class EfaLayout(Record):
    """What decides the network interfaces of an EC2 machine with EFA."""

    network_cards: Count
    interfaces: Count
    """EFA interfaces that the machine takes; can be fewer than its cards."""
    card_0: bool
    """Whether card 0, which carries the primary interface, supports EFA too."""

    @model_validator(mode="after")
    def _fits(self) -> EfaLayout:
        usable = self.network_cards - (0 if self.card_0 else 1)
        if self.interfaces > usable:
            raise ValueError(f"{self.interfaces} EFA interfaces do not fit on {usable} cards")
        return self


class MachineFacts(Record):
    """A machine type as its data file gives it."""

    name: Name
    accelerator: Name | None = None
    num_accelerators: Annotated[int, Field(ge=0)] = 0
    accelerator_type: Name | None = None
    """What the cloud calls the accelerator, where its API asks for that (GKE)."""
    vcpus: Count
    memory_gib: Amount | None = None
    local_nvme_gib: Amount | None = None
    """Local NVMe in all; None: none, or not known here."""
    nics: Nics | None = None
    efa: EfaLayout | None = None
    fabric: Name = "none"
    topologies: tuple[Name, ...] = ()
    """Shapes of the slices that a TPU machine is sold in, in chips: `4x4`."""
    architecture: Architecture = "amd64"
    purchase: tuple[Purchase, ...] = ()
    """Empty: not known here."""
    regions: tuple[Name, ...] = ()
    """Regions that offer it; empty: not known here."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _counts_what_it_names(self) -> MachineFacts:
        if (self.accelerator is None) != (self.num_accelerators == 0):
            raise ValueError("accelerator and num_accelerators go together")
        return self


class Machine(MachineFacts):
    """A machine type of a cloud."""

    cloud: Cloud

    def offered_in(self, region: str) -> bool | None:
        """Whether the region offers it; None where the catalogue does not know."""
        return region in self.regions if self.regions else None


class PriceRow(Record):
    """Prices of one machine in one region, USD per instance-hour."""

    machine: Name
    region: Name
    """A region, or a residency pattern such as `in:us` where one price holds for all of it."""
    on_demand: UsdPerHour | None = None
    spot: UsdPerHour | None = None
    source: Source

    @model_validator(mode="after")
    def _says_something(self) -> PriceRow:
        if self.on_demand is None and self.spot is None:
            raise ValueError("a price row needs on_demand, spot or both")
        return self


class StorageRow(Record):
    """The price of one kind of storage in one region, USD per GiB-month."""

    storage: Name
    """Kind and, where the price depends on it, its speed or tier: `fsx-lustre-250`, `filestore-zonal`."""
    region: Name
    usd_per_gib_month: Annotated[Decimal, Field(gt=0)]
    source: Source


class ServiceRow(Record):
    """The price of one service that runs by the hour in one region: a control plane, a NAT gateway."""

    service: Name
    """`eks-cluster`, `nat-gateway`, `cloud-nat-vm` (for each of the first 32 machines behind it)."""
    region: Name
    usd_per_hour: UsdPerHour
    source: Source


class TrafficRow(Record):
    """The price of data that leave a region, USD per GiB, at the first tier."""

    region: Name
    """Where they are; `*`: in any region."""
    to: Name
    """Where they go: `same-region`, another region by its name, or `internet`: out of the cloud."""
    usd_per_gib: Annotated[Decimal, Field(ge=0)]
    source: Source


class RegionFacts(Record):
    """A place where a cloud keeps machines or data."""

    name: Name
    location: Name
    country: Annotated[str, Field(pattern=r"^[A-Z]{2}$")] | None = None
    """ISO 3166-1 alpha-2; None for a place that spans countries."""
    unions: tuple[Name, ...] = ()
    """Unions that hold the whole place, beyond those that its country belongs to."""
    source: Source


class Region(RegionFacts):
    """A region of a cloud."""

    cloud: Cloud


class Notice(Record):
    """What a cloud tells a spot machine before it takes it."""

    seconds: Count
    """From the signal to the end of the machine."""
    usable_seconds: Count
    """What is left of it for the pods of a job: a checkpoint must fit in here."""
    source: Source


class AcceleratorsFile(DataFile):
    """accelerators.yaml"""

    accelerators: tuple[Accelerator, ...]


class FabricsFile(DataFile):
    """fabrics.yaml"""

    fabrics: tuple[Fabric, ...]


class MachinesFile(DataFile):
    """machines/<cloud>.yaml"""

    machines: tuple[MachineFacts, ...]


class PricesFile(DataFile):
    """prices/<cloud>.yaml"""

    prices: tuple[PriceRow, ...]
    storage: tuple[StorageRow, ...] = ()
    services: tuple[ServiceRow, ...] = ()
    traffic: tuple[TrafficRow, ...] = ()


class RegionsFile(DataFile):
    """regions.yaml"""

    unions: dict[Name, tuple[Name, ...]]
    """Union → its member countries."""
    regions: dict[Cloud, tuple[RegionFacts, ...]]


class NoticesFile(DataFile):
    """notices.yaml"""

    notices: dict[Cloud, Notice]
