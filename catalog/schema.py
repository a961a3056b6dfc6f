"""Dataclasses of the data files that every job needs, accelerators and fabrics, and the field types of all
data files. The other files have theirs in `cloud_schema`: a dataclass takes 2 ms to import.

A figure that no source gives is None, never a guess.
"""

import re
from dataclasses import dataclass, field
from datetime import date
from typing import Annotated, Literal

from catalog.reader import Bound

Cloud = str
"""A target that sells machines: one that `machines/` names. `local` and `onprem` sell none."""
Architecture = Literal["amd64", "arm64"]
POSITIVE = Bound("greater than 0", lambda value: value > 0)
NOT_EMPTY = Bound("at least one", lambda value: len(value) > 0)
Name = Annotated[str, NOT_EMPTY]
Setting = Annotated[
    str, Bound("NAME=value or NAME!=value", lambda text: bool(re.fullmatch("[A-Z0-9_]+!?=[^ ,=]+", text)))
]
Count = Annotated[int, POSITIVE]
Amount = Annotated[float, POSITIVE]


@dataclass(frozen=True, kw_only=True)
class FigureSource:
    """Source of figures: title, URL, and the date of the figures (or of reading, if undated)."""

    title: Name
    url: Annotated[str, Bound("an https URL", lambda value: value.startswith("https://"))]
    date: date


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """Base class of data files: their sources, which rows name by key and get when they are read."""

    sources: Annotated[dict[Name, FigureSource], NOT_EMPTY]


@dataclass(frozen=True, kw_only=True)
class Rack:
    """Rack of an accelerator, whose machines form one NVLink domain."""

    machines: Count
    accelerators: Count
    """Number of accelerators per machine."""
    architecture: Architecture
    """Architecture of the machines' processors, which sit on the accelerators' boards."""
    source: FigureSource

    @property
    def nvlink_domain(self) -> int:
        """Accelerators of the rack."""
        return self.machines * self.accelerators


@dataclass(frozen=True, kw_only=True)
class Accelerator:
    """A GPU or TPU model."""

    name: Name
    title: Name
    vendor: Literal["nvidia", "amd", "google", "trainyard"]
    resource: Name
    """Extended resource by which a pod requests the accelerator."""
    memory_gib: Amount | None = None
    """Memory of one accelerator in GiB, as its cloud reports it; None for a simulated one."""
    rack: Rack | None = None
    """Rack that the accelerator is sold in; None where NVLink ends at the machine."""
    source: FigureSource

    @property
    def simulated(self) -> bool:
        """Whether it is only advertised: nothing computes on it."""
        return self.vendor == "trainyard"


@dataclass(frozen=True, kw_only=True)
class HostPath:
    """A path of the node that a container has."""

    mount: Name
    """Mount path in the container."""
    writable: bool = False


@dataclass(frozen=True, kw_only=True)
class ImageFile:
    """A file that a job's image must contain, since the node does not provide it."""

    file: Name
    """Soname of a shared library, a pattern below a library folder (`libibverbs/libmlx5-rdmav*.so`), or an
    absolute path of any file."""
    package: Name
    """Debian package with the file, else the project that publishes the file."""
    source: FigureSource
    for_ranks: bool = True
    """Whether ranks load the file, in any image; False for a file that only the runtime's own image needs."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Devices that a pod has by Dynamic Resource Allocation."""

    device_class: Name
    count: Count


@dataclass(frozen=True, kw_only=True)
class Sidecar:
    """A container that runs beside the training process for as long as that does."""

    name: Name
    image: Name
    command: tuple[Name, ...]
    environment: dict[Name, str] = field(default_factory=dict)
    capabilities: tuple[Name, ...] = ()
    host_paths: dict[Name, HostPath] = field(default_factory=dict)
    annotations: dict[Name, str] = field(default_factory=dict)
    """Annotations of the sidecar's pod."""
    ready: tuple[Name, ...] = ()
    """Command that succeeds once it serves."""


@dataclass(frozen=True, kw_only=True)
class NumaNode:
    """A NUMA node of a machine: its cores, and the GPUs and NICs below its PCIe switches."""

    affinity: Name
    """CPU mask of the node's cores, in groups of eight hexadecimal digits (sysfs: local_cpus)."""
    switches: tuple[tuple[tuple[Name, Name], ...], ...]
    """Pairs of GPU and NIC behind each PCIe switch, both by PCI domain: `0001`, `0101`."""


@dataclass(frozen=True, kw_only=True)
class NcclTopology:
    """PCIe topology of a virtual machine, which hides its PCIe switches from NCCL."""

    vendor: Name
    family: Count
    model: Count
    """Model number of the processors (CPUID)."""
    link: Name
    """Speed of a PCIe lane; each device has 16 lanes."""
    numa: tuple[NumaNode, ...]
    source: FigureSource


@dataclass(frozen=True, kw_only=True)
class Fabric:
    """A fabric class: what a job's pods need so that their ranks talk over the fabric and not over TCP.

    One class has one resource name and count, one environment, one set of volumes: one training runtime.
    """

    name: Name
    title: Name
    variant_of: Name | None = None
    """Another class of the same machines, whose pods reach the same network in another way."""
    accelerator_resource: Name = "nvidia.com/gpu"
    """Extended resource of the accelerators that the fabric joins."""
    frameworks: tuple[Name, ...] = ("torch", "mpi")
    """Frameworks that have a training runtime for this class."""
    resources: dict[Name, Count] = field(default_factory=dict)
    """Extended resources that a pod on a whole machine requests."""
    environment: dict[Name, str] = field(default_factory=dict)
    refused: tuple[Setting, ...] = ()
    """Variables with which ranks leave the fabric, or lose GPUDirect: `NAME=value`, or `NAME!=value` for all
    but one."""
    setup: str = ""
    """Shell line (bash) that sets NCCL variables which depend on the node."""
    pins_memory: bool = False
    """Whether the NICs need locked memory, so that the nodes must raise RLIMIT_MEMLOCK (Linux,
    drivers/infiniband/core/umem.c). CAP_IPC_LOCK helps root only: a user's process does not get the
    capability."""
    image_files: tuple[ImageFile, ...] = ()
    """Files that an image must contain so that ranks reach the fabric."""
    node_files: tuple[Name, ...] = ()
    """Files that the node provides to the container: libraries, and patterns of device files with at least
    one match."""
    num_nics: Count | None = None
    """NICs of a node that the class reaches, each with one match of a pattern `uverbs*`; None: the site's."""
    nic_gbps: Amount | None = None
    """Rate of each of them in Gb/s; None: the node's own files say it."""
    mismatch: Literal["ends", "warns"] = "ends"
    """What ranks do that find another network than the class has at their first communicator."""
    nccl: Name | None = None
    """Beginning of the versions of NCCL that the plugin on the nodes is qualified for."""
    hugepages_2mi_mib: Count | None = None
    host_paths: dict[Name, HostPath] = field(default_factory=dict)
    """Path on the node → mount path in the container."""
    interfaces: dict[Name, Name] = field(default_factory=dict)
    """Additional interface in the pod → name of its Kubernetes Network."""
    attachments: tuple[Name, ...] = ()
    """Secondary networks (Multus) of a pod, one per interface: `namespace/name`."""
    claim: Claim | None = None
    topology: NcclTopology | None = None
    daemon: Sidecar | None = None
    nvlink_domain: Count | None = None
    """Accelerators in one NVLink domain across machines; pods claim a channel of the domain."""
    source: FigureSource

    @property
    def pod_resources(self) -> dict[str, int | str]:
        """Resources that a pod on a whole machine requests, besides its accelerators."""
        pages = {"hugepages-2Mi": f"{self.hugepages_2mi_mib}Mi"} if self.hugepages_2mi_mib else {}
        return {**self.resources, **pages}


@dataclass(frozen=True, kw_only=True)
class AcceleratorsFile(DataFile):
    """accelerators.yaml"""

    accelerators: tuple[Accelerator, ...]
    machine_prefixes: tuple[Name, ...]
    """Prefixes of the names of machines with accelerators, also of machines that the catalogue lacks."""
    other_resources: tuple[Name, ...]
    """Extended resources of accelerators that no machine of the catalogue has."""


@dataclass(frozen=True, kw_only=True)
class FabricsFile(DataFile):
    """fabrics.yaml"""

    fabrics: tuple[Fabric, ...]
    machines_of_one_zone: tuple[Name, ...]
    """Name patterns of machines whose fabric ends at the zone, also of machines that the catalogue lacks."""
