"""Chooses the backend of collectives, measures their speed, and compares it with the rates of the node's RDMA
devices.

A job whose pods got no fabric (a missing plugin, a resource that was not requested, a variable with a typo)
runs all the same, over TCP, at a fraction of the speed. At each start the ranks time a few all-reduces, and
compare the best with the speed that the node's RDMA devices report.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from trainyard_train.config_base import ConfigError
from trainyard_train.parallelism.config import Backend

DEVICES: Final = Path("/sys/class/infiniband")
"""Folder of InfiniBand, RoCE and EFA devices, each with the rate of its ports."""
ENOUGH: Final = 0.25
"""Minimum share of the devices' rate that an all-reduce over them reaches, with a margin."""
_WITHOUT_MPI: Final = (
    "this PyTorch was built without MPI, as its wheels are; allowed here: auto, gloo, with a GPU nccl, each"
    " also under mpirun; or build PyTorch from source where MPI is installed (USE_MPI=1)"
)
_NO_NETWORK: Final = re.compile(r"Failed to initialize any NET plugin|Error: network .+ not found")
"""Error message of NCCL up to 2.30 if the network that NCCL_NET names cannot be used."""
_ROUNDS: Final = 5
_BYTES: Final = {"cuda": 64 << 20, "cpu": 4 << 20}


@dataclass(frozen=True)
class Choice:
    """The chosen backend, and the reason."""

    backend: str
    """Name of the backend in PyTorch."""
    why: str


def choose(wanted: Backend, device: torch.device) -> Choice:
    """The backend for collectives on a device.

    Raises:
        ConfigError: the requested backend is not available here.
    """
    if wanted == "nccl" and device.type != "cuda":
        raise ConfigError(["backend: got 'nccl', but this process sees no GPU; allowed here: auto, gloo"])
    if wanted == "mpi" and not dist.is_mpi_available():
        raise ConfigError(["backend: got 'mpi', but " + _WITHOUT_MPI])
    if wanted != "auto":
        return Choice(wanted, "set by the configuration")
    if device.type != "cuda":
        return Choice("gloo", "this process sees no GPU")
    maker = "RCCL, since PyTorch was built for ROCm" if torch.version.hip else "NCCL, since there is a GPU"
    return Choice("nccl", maker)


def refused_network(error: BaseException) -> ConfigError | None:
    """Return what is wrong where NCCL could not use the network that NCCL_NET names; None for another error.

    No rank has failed then, and another start would change nothing.
    """
    if not isinstance(error, dist.DistBackendError) or not _NO_NETWORK.search(str(error)):
        return None
    named = os.environ.get("NCCL_NET", "")
    return ConfigError(
        [
            f"NCCL_NET: got {named!r}, but NCCL finds no such network: the image lacks a library, or the pod"
            " has no device (NCCL_DEBUG=INFO shows which); allowed: a network of the node, or Socket (TCP)"
        ]
    )


@dataclass(frozen=True)
class Measured:
    """Measured speed of an all-reduce of a large tensor."""

    gigabytes_per_second: float
    """Bus bandwidth, best of a few: 2·(n - 1)/n of the tensor's bytes by its time, as nccl-tests count it."""
    rate: float
    """Rated speed of this rank's share of the node's RDMA devices, in GB/s; 0: the node has none."""
    verdict: str
    fabric_unused: bool = False
    """Whether the node has a fabric that the collectives do not use."""


def measure(device: torch.device, backend: str, nodes: Sequence[str]) -> Measured:
    """Time all-reduces; all ranks must call it. It takes milliseconds on a CPU, and on a fabric.

    Args:
        device: device of this rank.
        backend: backend of the collectives.
        nodes: the node of each rank.
    """
    values = torch.zeros(_BYTES[device.type] // 4, device=device)
    seconds = min(_time(values) for _ in range(_ROUNDS))
    ranks = len(nodes)
    speed = 2 * (ranks - 1) / ranks * values.numel() * 4 / seconds / 1e9
    rate = sum(port_rates()) / max(nodes.count(node) for node in nodes)
    unused = len(set(nodes)) > 1 and backend == "nccl" and rate > 0 and speed < ENOUGH * rate
    return Measured(speed, rate, _verdict(speed, rate, backend, nodes, unused), unused)


def _time(values: torch.Tensor) -> float:
    begin = time.perf_counter()
    dist.all_reduce(values)
    if values.is_cuda:
        torch.cuda.synchronize(values.device)
    return time.perf_counter() - begin


def _verdict(speed: float, rate: float, backend: str, nodes: Sequence[str], unused: bool) -> str:
    if len(set(nodes)) == 1:
        return "all ranks are on one node: no fabric is needed"
    if backend == "gloo":
        return "gloo uses TCP, also where there is a fabric"
    if backend == "mpi":
        return f"MPI chooses the network itself, and reaches {speed:.1f} GB/s"
    if not rate:
        return "over TCP: the node has no RDMA device, or the pod requests none"
    if unused:
        return (
            f"the fabric is not in use: {speed:.1f} of {rate:.1f} GB/s, the devices' rate; NCCL_DEBUG=INFO"
            " shows the network that NCCL chose, and the pod's resources must include the devices"
        )
    return f"the fabric is in use: {speed:.1f} of {rate:.1f} GB/s, the devices' rate"


def port_rates(devices: Path = DEVICES) -> list[float]:
    """Rate of each active port of this node's RDMA devices, in GB/s: `400 Gb/sec (4X NDR)` is 50."""
    rates = []
    for port in sorted(devices.glob("*/ports/*")):
        state, rate = (_text(port / name) for name in ("state", "rate"))
        if "ACTIVE" in state and (found := re.match(r"([\d.]+) Gb/sec", rate)):
            rates.append(float(found[1]) / 8)
    return rates


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
