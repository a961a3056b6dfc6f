"""Chooses the backend of collectives, measures their speed, and judges it by what the node's NICs can do.

A job whose pods got no fabric (a missing plugin, a resource that was not requested, a variable with a typo)
runs all the same, over TCP or some of the NICs, at a fraction of the speed. At each start the ranks time a
few all-reduces, and compare the best with the rate of a node's NICs, and NCCL's own lines with the class.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
import torch.distributed as dist

from trainyard_train.config_base import ConfigError, RefusalError
from trainyard_train.contract import EXIT_NO_FABRIC
from trainyard_train.parallelism import nccl_log
from trainyard_train.parallelism.config import Backend
from trainyard_train.parallelism.nccl_log import FabricClass

DEVICES: Final = Path("/sys/class/infiniband")
"""Folder of InfiniBand, RoCE and EFA devices, each with the rate of its ports."""
ENDS: Final = 0.25
WARNS: Final = 0.6
"""Shares of the rate of a node's NICs. Two nodes of eight NICs of 400 Gb/s reach all of it with GPUDirect
(421 to 456 GB/s: docs.skypilot.co, an InfiniBand test), half without, an eighth with one NIC, TCP less."""
_NO_NETWORK: Final = re.compile(r"Failed to initialize any NET plugin|Error: network .+ not found")
"""Error message of NCCL up to 2.30 if the network that NCCL_NET names cannot be used."""
_ROUNDS: Final = 5
_BYTES: Final = {"cuda": 64 << 20, "cpu": 4 << 20}
_LARGE: Final = 1 << 30
"""Bytes of a second measurement on GPUs: with 64 MiB the latency of hundreds of ranks hides the bandwidth."""
_LARGE_SECONDS: Final = 0.02
"""Maximum seconds of the first measurement before the second one, which takes 16 times as long."""
_ACCELERATORS: Final = "TRAINYARD_ACCELERATORS_PER_NODE"


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


class NoFabricError(RefusalError):
    """Ranks leave the fabric of their pool, or use a part of it."""

    exit_code = EXIT_NO_FABRIC


@dataclass(frozen=True)
class Measured:
    """Measured speed of an all-reduce of a large tensor."""

    gigabytes_per_second: float
    """Bus bandwidth, best of a few: 2·(n - 1)/n of the tensor's bytes by its time, as nccl-tests count it."""
    rate: float
    """Rated speed of a node's NICs, in GB/s, which bounds a hierarchical all-reduce; 0: unknown."""
    verdict: str
    share: float | None = None
    """Measured speed by the rate; None where that judges nothing."""


def measure(
    device: torch.device, backend: str, nodes: Sequence[str], environment: Mapping[str, str] = os.environ
) -> Measured:
    """Time all-reduces; all ranks must call it. It takes milliseconds on a CPU, and on a fabric.

    Args:
        device: device of this rank.
        backend: backend of the collectives.
        nodes: the node of each rank.
        environment: variables of the pod, with its fabric class.
    """
    values = torch.zeros(_BYTES[device.type] // 4, device=device)
    seconds = min(_time(values) for _ in range(_ROUNDS))
    if device.type == "cuda" and _agree(seconds, device) < _LARGE_SECONDS:
        values = torch.zeros(_LARGE // 4, device=device)
        seconds = min(_time(values) for _ in range(_ROUNDS))
    ranks, of_node = len(nodes), max(nodes.count(node) for node in nodes)
    speed = 2 * (ranks - 1) / ranks * values.numel() * 4 / seconds / 1e9
    known = FabricClass.of(environment)
    whole = known.nics * known.gbps / 8 if known and known.gbps else sum(port_rates())
    rate = whole * min(1.0, of_node / int(environment.get(_ACCELERATORS) or of_node))
    over_nics = environment.get("NCCL_NET", "").lower() != "socket" and (known is None or not known.nvlink)
    judged = over_nics and len(set(nodes)) > 1 and backend == "nccl" and rate > 0
    share = speed / rate if judged else None
    return Measured(speed, rate, _verdict(speed, rate, backend, nodes, share), share)


def _time(values: torch.Tensor) -> float:
    begin = time.perf_counter()
    dist.all_reduce(values)
    if values.is_cuda:
        torch.cuda.synchronize(values.device)
    return time.perf_counter() - begin


def _agree(seconds: float, device: torch.device) -> float:
    """Return the longest time of all ranks; infinite where one has no memory for the large tensor."""
    fits = torch.cuda.mem_get_info(device)[0] > 2 * _LARGE
    longest = torch.tensor(seconds if fits else float("inf"), device=device)
    dist.all_reduce(longest, dist.ReduceOp.MAX)
    return float(longest)


def _verdict(speed: float, rate: float, backend: str, nodes: Sequence[str], share: float | None) -> str:
    if len(set(nodes)) == 1:
        return "all ranks are on one node: no fabric is needed"
    if backend == "gloo":
        interface = os.environ.get("GLOO_SOCKET_IFNAME", "the interface of the node's name")
        return f"gloo uses TCP over {interface}, also where there is a fabric; it reaches {speed:.1f} GB/s"
    if share is None:
        return f"{speed:.1f} GB/s; the rate of a node's NICs is not known, or is no measure (NVLink, Socket)"
    known = f"{speed:.1f} of {rate:.1f} GB/s, the rate of a node's NICs"
    if share >= WARNS:
        return f"the fabric is in use: {known}"
    return f"the fabric is {'not in use' if share < ENDS else 'slow'}: {known}; NCCL_DEBUG=INFO shows why"


def own_report(
    found: Measured, node: str, *, is_rank0: bool, environment: Mapping[str, str] = os.environ
) -> str:
    """Return what this rank knows of the fabric, as text for `merged`: NCCL's lines, and rank 0 the speed."""
    wanted, said = FabricClass.of(environment), nccl_log.read()
    ends, warns = nccl_log.compare(said, wanted) if said and wanted else ([], [])
    if is_rank0 and found.share is not None and found.share < WARNS:
        judged = ends if found.share < ENDS and wanted and wanted.ends else warns
        judged.append(found.verdict)
    lines = {"ends": ends, "warns": warns, "network": [str(said)] if said else []}
    return json.dumps({key: [f"{node}: {line}" for line in each] for key, each in lines.items()})


def merged(reports: Sequence[str]) -> dict[str, list[str]]:
    """Return the lines of all ranks: the `network` of each node, what `ends` the job, and what `warns`."""
    found = [json.loads(each) for each in reports]
    return {key: [line for each in found for line in each[key]] for key in ("network", "ends", "warns")}


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
