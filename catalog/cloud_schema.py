"""Dataclasses of the data files about clouds: machines, prices, regions, quotas, preemption notices and
Kubernetes versions.

A figure that no source gives is None, never a guess.
"""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Literal

from catalog.reader import Bound
from catalog.schema import (
    NOT_EMPTY,
    POSITIVE,
    Amount,
    Architecture,
    Cloud,
    Count,
    DataFile,
    FigureSource,
    Name,
)

PurchaseKind = Literal["on-demand", "spot", "flex-start", "reservation", "capacity-block"]
"""Ways to buy a machine type. On-demand machines can be reserved too, so `reservation` is listed for other
machines only."""
NOT_NEGATIVE = Bound("0 or greater", lambda value: value >= 0)
Usd = Annotated[Decimal, POSITIVE]
TWO_CAPITALS = Bound("two capital letters", lambda value: bool(re.fullmatch("[A-Z]{2}", value)))
Country = Annotated[str, TWO_CAPITALS]


@dataclass(frozen=True, kw_only=True)
class Nics:
    """NICs of a machine: those of the fabric, else the ordinary ones (peak bandwidth)."""

    count: Count
    gbps: Amount


@dataclass(frozen=True, kw_only=True)
class EfaLayout:
    """Facts that determine the network interfaces of an EC2 machine with EFA."""

    network_cards: Count
    interfaces: Count
    """Maximum number of EFA interfaces of the machine; can be lower than its number of NICs."""
    card_0: bool
    """Whether card 0, which carries the primary interface, supports EFA too."""
    cards: tuple[int, ...] = ()
    """Network cards with an EFA interface, unless those are the first cards that support EFA."""

    def __post_init__(self) -> None:
        if self.cards and len(self.cards) != self.interfaces:
            raise ValueError(f"{self.interfaces} EFA interfaces are not one for each of cards {self.cards}")
        if any(not 0 < card < self.network_cards for card in self.cards):
            raise ValueError(f"cards {self.cards} are not cards 1 to {self.network_cards - 1}")
        usable = self.network_cards - (0 if self.card_0 else 1)
        if self.interfaces > usable:
            raise ValueError(f"{self.interfaces} EFA interfaces do not fit on {usable} cards")


@dataclass(frozen=True, kw_only=True)
class MachineFacts:
    """A machine type as in its data file."""

    name: Name
    accelerator: Name | None = None
    num_accelerators: Annotated[int, NOT_NEGATIVE] = 0
    accelerator_type: Name | None = None
    """Cloud's name of the accelerator, where the cloud's API needs one (GKE)."""
    vcpus: Count
    memory_gib: Amount | None = None
    local_nvme_gib: Amount | None = None
    """Total size of the local NVMe disks in GiB; None: no disks, or unknown."""
    nics: Nics | None = None
    efa: EfaLayout | None = None
    fabric: Name = "tcp"
    topologies: tuple[Name, ...] = ()
    """Slice shapes that a TPU machine is sold in, in chips: `4x4`."""
    architecture: Architecture = "amd64"
    purchase: tuple[PurchaseKind, ...] = ()
    """Ways to buy the machine; empty: unknown."""
    regions: tuple[Name, ...] = ()
    """Regions that offer the machine; empty: unknown."""
    sold_in: dict[PurchaseKind, tuple[Name, ...]] = field(default_factory=dict)
    """Way to buy → its regions, if these are only some of `regions`."""
    sources: Annotated[tuple[FigureSource, ...], NOT_EMPTY]

    def __post_init__(self) -> None:
        if (self.accelerator is None) != (self.num_accelerators == 0):
            raise ValueError("accelerator and num_accelerators go together")
        for way, regions in self.sold_in.items():
            if way not in self.purchase or not set(regions) < set(self.regions):
                raise ValueError(f"sold_in: {way} is one of `purchase`, in some of `regions`")


@dataclass(frozen=True, kw_only=True)
class Machine(MachineFacts):
    """A machine type of a cloud."""

    cloud: Cloud
    unlisted_regions: tuple[Name, ...] = ()
    """Regions of the cloud that the sources do not cover."""

    def offered_in(self, region: str) -> bool | None:
        """Whether the region offers it; None where the catalogue does not know."""
        return region in self.regions if self.regions and region not in self.unlisted_regions else None

    @property
    def ways(self) -> tuple[PurchaseKind, ...]:
        """Ways to buy the machine; empty: unknown."""
        reserved: tuple[PurchaseKind, ...] = ("reservation",) if "on-demand" in self.purchase else ()
        return (*self.purchase, *reserved)

    def ways_in(self, region: str) -> tuple[PurchaseKind, ...]:
        """Ways to buy the machine in a region; empty: unknown."""
        return tuple(way for way in self.ways if region in self.sold_in.get(way, (region,)))


@dataclass(frozen=True, kw_only=True)
class PriceRow:
    """Prices of one machine in one region, USD per instance-hour."""

    machine: Name
    region: Name
    """Region of the price, or a residency pattern (`in:us`) where one price holds for all matching
    regions."""
    on_demand: Usd | None = None
    spot: Usd | None = None
    source: FigureSource

    def __post_init__(self) -> None:
        if self.on_demand is None and self.spot is None:
            raise ValueError("a price row needs on_demand, spot or both")


@dataclass(frozen=True, kw_only=True)
class StorageRow:
    """The price of one kind of storage in one region, USD per GiB-month."""

    storage: Name
    """Kind of storage, with speed or tier where the price depends on them: `fsx-lustre-250`,
    `filestore-zonal`."""
    region: Name
    usd_per_gib_month: Usd
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class ServiceRow:
    """The price of one service that runs by the hour in one region: a control plane, a NAT gateway."""

    service: Name
    """Name of the service: `eks-cluster`, `nat-gateway`, `cloud-nat-vm` (per VM, for the first 32 VMs)."""
    region: Name
    usd_per_hour: Usd
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class TrafficRow:
    """The price of data that leave a region, USD per GiB, at the first tier."""

    region: Name
    """Region that data leave; `*`: any region."""
    to: Name
    """Destination of the data: `same-region`, another region, or `internet`."""
    usd_per_gib: Annotated[Decimal, NOT_NEGATIVE]
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class RegionFacts:
    """A region or zone of a cloud, with its jurisdiction."""

    name: Name
    location: Name
    country: Country | None = None
    """ISO 3166-1 alpha-2 code of the country; None for a region in several countries."""
    unions: tuple[Name, ...] = ()
    """Unions that contain the whole region, besides the unions of its country."""
    zones: Name = "abc"
    """Letters of its first three zones; of AWS and Google Cloud."""
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class Region(RegionFacts):
    """A region of a cloud."""

    cloud: Cloud


NOTICE_MARGIN = 0.25
"""Share of a preemption notice that a checkpoint must leave unused."""


@dataclass(frozen=True, kw_only=True)
class SpotNotice:
    """Preemption notice of a cloud's spot machines."""

    seconds: Count
    """Seconds from the preemption notice to the end of the machine."""
    usable_seconds: Count
    """Seconds of the preemption notice that a job's pods can use: upper bound of a checkpoint's time."""
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A limit of an account that machines, or addresses, count against."""

    family: Name
    """Machine family that counts against the quota; quotas.yaml defines families per cloud."""
    purchase: Annotated[tuple[Literal["on-demand", "spot"], ...], NOT_EMPTY]
    """Way to buy that counts against the quota."""
    id: Name
    """Name of the quota in the cloud's API."""
    title: str = ""
    """Name of the quota in the cloud's console; empty where the ID serves."""
    dimension: dict[str, str] = field(default_factory=dict)
    """Dimension that selects one of the quota's values; empty for a quota with one value."""
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class OperatorSupport:
    """The minor versions of Kubernetes that a pinned operator was tested with."""

    name: Name
    version: Name
    minors: Annotated[tuple[Name, ...], NOT_EMPTY]
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class OfferedVersions:
    """The minor versions of Kubernetes that a cloud makes clusters of."""

    minors: Annotated[tuple[Name, ...], NOT_EMPTY]
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class KubernetesFile(DataFile):
    """kubernetes.yaml"""

    operators: Annotated[tuple[OperatorSupport, ...], NOT_EMPTY]
    offered: dict[Cloud, OfferedVersions]


@dataclass(frozen=True, kw_only=True)
class QuotasFile(DataFile):
    """quotas.yaml"""

    quotas: dict[Cloud, tuple[Quota, ...]]


@dataclass(frozen=True, kw_only=True)
class MachinesFile(DataFile):
    """machines/<cloud>.yaml"""

    machines: tuple[MachineFacts, ...]
    unlisted_regions: tuple[Name, ...] = ()
    """Regions that the sources do not cover, where offers of machines are unknown."""


@dataclass(frozen=True, kw_only=True)
class PricesFile(DataFile):
    """prices/<cloud>.yaml"""

    prices: tuple[PriceRow, ...]
    storage: tuple[StorageRow, ...] = ()
    services: tuple[ServiceRow, ...] = ()
    traffic: tuple[TrafficRow, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RegionsFile(DataFile):
    """regions/<cloud>.yaml"""

    regions: tuple[RegionFacts, ...]


@dataclass(frozen=True, kw_only=True)
class NoticesFile(DataFile):
    """notices.yaml"""

    notices: dict[Name, SpotNotice]
    """Target → its preemption notice."""
