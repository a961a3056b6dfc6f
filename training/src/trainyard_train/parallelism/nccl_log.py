"""Reads what NCCL says of its first communicator, and compares it with the fabric class of the pod.

Formats of NCCL 2.19 to 2.30 (src/init.cc, plugin/net.cc, transport/net.cc, transport/net_ib/init.cc,
transport/nvls.cc, graph/topo.cc) and of aws-ofi-nccl 1.9 to 1.21 (src/nccl_ofi_net.cpp). Google's plugins are
known by NCCL's own lines alone.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NETWORK: Final = re.compile(r"(?:Assigned NET plugin|Using network) (.+?)(?: to comm)?$", re.MULTILINE)
_VERBS: Final = re.compile(r"NET/(?!Socket)\S+ ?: Using (\[0\].+)")
_PORT: Final = re.compile(r"\[\d+\]([^\s:]+):\d+")
_LIBFABRIC: Final = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w;]+).*\(found (\d+) nics\)")
_HCA: Final = re.compile(r"NET/(.+?) : GPU Direct RDMA (Enabled|Disabled) for HCA \d+ '(.+?)'")
_CHANNEL: Final = re.compile(r"Channel .+ via NET/[^/]+/\d+(?:\(\d+\))?(/GDRDMA)?")
_RACK: Final = re.compile(r"localRanks \d+ localRank \d+ MNNVL (\d)")
_MULTICAST: Final = re.compile(r"NVLS multicast support is (not )?available")
_VERSION: Final = re.compile(r"[NR]CCL version\s*:?\s*(\d+\.\d+\.\d+)")


@dataclass(frozen=True)
class FabricClass:
    """What the pod's class says of NCCL's network on a node."""

    network: str
    nics: int
    """Number of NICs; 0: the site's."""
    gbps: float
    """Rate of each NIC; 0: the class does not know it."""
    nvlink: int
    """GPUs of an NVLink domain across nodes; 0: there is none."""
    version: str
    """Version of NCCL that the network's plugin is qualified for; empty: any."""
    ends: bool
    """Whether a mismatch ends the job, instead of a warning."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> FabricClass | None:
        """Return the class of this pod; None where it has none, and for a job that asks for TCP."""
        words = environment.get("TRAINYARD_FABRIC", "").split()
        said = dict(word[len("nccl:") :].split("=", 1) for word in words if word.startswith("nccl:"))
        network = environment.get("NCCL_NET", "")
        if not said or network.lower() == "socket":
            return None
        nics, gbps, nvlink = (float(said.get(name, 0)) for name in ("nics", "gbps", "nvlink"))
        ends = said.get("mismatch") != "warns"
        return cls(network, int(nics), gbps, int(nvlink), said.get("version", ""), ends)


@dataclass(frozen=True)
class NcclNetwork:
    """What NCCL says that it uses."""

    network: str
    provider: str
    """Provider of libfabric; empty without it."""
    nics: tuple[str, ...]
    """Names of the NICs; libfabric names groups of them."""
    num_nics: int
    without_gpudirect: tuple[str, ...]
    """Those that do not reach the GPUs' memory."""
    channels: tuple[bool, ...]
    """For each connection to another node: whether it uses GPUDirect."""
    is_rack: bool | None
    """Whether NVLink joins nodes; None where NCCL says nothing of it."""
    multicast: bool | None
    """Whether NVLink's switches reduce (NVLS)."""
    version: str

    def __str__(self) -> str:
        parts = {
            self.network: True,
            f"{self.num_nics} NICs": self.num_nics > 0,
            "GPUDirect": bool(self.channels) and all(self.channels),
            "NVLink between nodes": self.is_rack,
            "NVLS" if self.multicast else "no NVLS": self.multicast is not None,
            f"NCCL {self.version}": bool(self.version),
        }
        return ", ".join(part for part, known in parts.items() if known)


def parse(text: str) -> NcclNetwork | None:
    """Read the log of one rank, of the levels INIT and NET; None for a log without a network."""
    networks = _NETWORK.findall(text)
    if not networks:
        return None
    hcas = {name: state for plugin, state, name in _HCA.findall(text) if plugin == networks[-1]}
    ports = _PORT.findall(found[-1]) if (found := _VERBS.findall(text)) else []
    nics = tuple(dict.fromkeys(ports)) or tuple(hcas)
    libfabric, racks = _LIBFABRIC.findall(text), _RACK.findall(text)
    multicast, version = _MULTICAST.search(text), _VERSION.search(text)
    return NcclNetwork(
        network=networks[-1],
        provider=libfabric[-1][0] if libfabric else "",
        nics=nics,
        num_nics=int(libfabric[-1][1]) if libfabric else len(nics),
        without_gpudirect=tuple(name for name, state in hcas.items() if state == "Disabled"),
        channels=tuple(bool(each) for each in _CHANNEL.findall(text)),
        is_rack=racks[-1] == "1" if racks else None,
        multicast=not multicast[1] if multicast else None,
        version=version[1] if version else "",
    )


def compare(found: NcclNetwork, wanted: FabricClass) -> tuple[list[str], list[str]]:
    """Return how ranks leave the class's fabric or use a part of it, and what may only be slower."""
    used, asked = (name.lower().removeprefix("aws ") for name in (found.network, wanted.network))
    off, nics = found.without_gpudirect, ", ".join(found.nics) or "no names"
    none = (bool(off) and off == found.nics) or (bool(found.channels) and not any(found.channels))
    faults = {
        f"NCCL uses the network {found.network} instead of {wanted.network}": asked and used != asked,
        f"libfabric's provider is {found.provider} instead of efa": found.provider not in ("", "efa"),
        f"NCCL uses {found.num_nics} of {wanted.nics} NICs ({nics})": 0 < found.num_nics < wanted.nics,
        "without GPUDirect: data go through the host's memory": none,
        "NVLink does not join the nodes, whose NVLink domain (IMEX) has no effect": (
            wanted.nvlink and found.is_rack is False
        ),
    }
    another = wanted.version and found.version and found.version != wanted.version
    remarks = {
        f"no GPUDirect by {', '.join(off)}": off and not none,
        f"NCCL {found.version} with a plugin that is qualified for {wanted.version}": another,
    }
    ends, warns = ([text for text, holds in each.items() if holds] for each in (faults, remarks))
    return (ends, warns) if wanted.ends else ([], [*ends, *warns])


def record(environment: MutableMapping[str, str]) -> None:
    """Let the first rank of each node write NCCL's log to a file, unless the job asks for the log itself."""
    is_first = environment.get("LOCAL_RANK", "0") == "0"
    if is_first and "NCCL_DEBUG" not in environment and FabricClass.of(environment):
        asked = {"": "INFO", "_SUBSYS": "INIT,NET", "_FILE": str(_file())}
        environment.update({f"NCCL_DEBUG{name}": value for name, value in asked.items()})


def read() -> NcclNetwork | None:
    """Return what the recorded log says, and delete it; None if there is none."""
    try:
        text = _file().read_text(errors="replace")
        _file().unlink()
    except OSError:
        return None
    return parse(text)


def _file() -> Path:
    return Path(tempfile.gettempdir(), f"trainyard-nccl-{os.getpid()}.log")
