"""Who takes part in a run, and how the ranks talk."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist

from training.config import Backend, ConfigError, TimeoutConfig
from training.fabric import Choice, choose
from training.rendezvous import check_place, meet

_MPI_RANK: Final = "OMPI_COMM_WORLD_RANK"

_FOLLOW_SECONDS: Final = 2.0
"""For which others wait for rank 0 before they leave."""

_REFUSE_SECONDS: Final = 10.0
"""For which rank 0 waits for others that may find the same wrong as it does."""

_SENT_AT_ONCE: Final = 64 << 20
"""Bytes of one collective, so that none takes long."""


def adopt_launcher_settings(environment: MutableMapping[str, str], backend: Backend = "auto") -> None:
    """Take rank and world from Open MPI, where that has started this process.

    Args:
        environment: what is known, and what is learnt.
        backend: what is to carry collectives; for `mpi` see `leave_mpi`.
    """
    if "RANK" not in environment and _MPI_RANK in environment:
        environment.update(_ask_mpi(environment["OMPI_COMM_WORLD_LOCAL_RANK"]))
        if backend != "mpi":
            leave_mpi()


def leave_mpi() -> None:
    """End this process's part in MPI, if it has one, or mpirun would take an exit on notice for a crash."""
    library = sys.modules.get("mpi4py.MPI")
    if library and library.Is_initialized() and not library.Is_finalized():
        library.Finalize()


def _ask_mpi(local_rank: str) -> dict[str, str]:
    """Let rank 0 tell all where to meet."""
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    meeting_place = None
    if world.Get_rank() == 0:
        with socket.socket() as listener:
            listener.bind(("", 0))
            meeting_place = (socket.gethostbyname(socket.gethostname()), listener.getsockname()[1])
    address, port = world.bcast(meeting_place)
    return {
        "RANK": str(world.Get_rank()),
        "WORLD_SIZE": str(world.Get_size()),
        "LOCAL_RANK": local_rank,
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }


@dataclass(frozen=True)
class Mesh:
    """This process's place among the ranks."""

    rank: int
    world_size: int
    device: torch.device
    node: str
    store: dist.Store
    """Small facts for all ranks, kept by the process at MASTER_ADDR for as long as it lives."""
    tensor: int = 1
    """Ranks that compute each layer together."""
    pipeline: int = 1
    """Stages that the layers are divided into."""
    choice: Choice | None = None
    """What carries collectives; None where a rank is alone."""

    def shaped(self, tensor: int, pipeline: int) -> Mesh:
        """The same ranks as a mesh of stages × data × tensor, the last running fastest.

        Raises:
            ConfigError: the ranks do not fill such a mesh.
        """
        if self.world_size % (tensor * pipeline):
            problem = (
                f"parallel: got {self.world_size} ranks; allowed: a multiple of tensor × pipeline ="
                f" {tensor} × {pipeline}; start as many ranks, or change parallel.tensor or .pipeline"
            )
            raise ConfigError([problem])
        return replace(self, tensor=tensor, pipeline=pipeline)

    @property
    def data_size(self) -> int:
        """How many parts a batch is divided into."""
        return self.world_size // (self.tensor * self.pipeline)

    @property
    def data_rank(self) -> int:
        """Which part of each batch this rank works on."""
        return self.rank // self.tensor % self.data_size

    @property
    def stage(self) -> int:
        """Which part of the layers this rank has."""
        return self.rank // (self.tensor * self.data_size)

    @property
    def leads(self) -> bool:
        """Whether this is the rank that writes what one rank writes for all."""
        return self.rank == 0

    @property
    def shape(self) -> dict[str, int]:
        """Size of each dimension."""
        return {"pipeline": self.pipeline, "data": self.data_size, "tensor": self.tensor}

    def gather(self, key: str, value: str) -> list[str]:
        """Give every rank the value of each, in order of rank. A key is used once in a process's life."""
        self.store.set(f"{key}/{self.rank}", value)
        return [str(self.store.get(f"{key}/{rank}"), "utf-8") for rank in range(self.world_size)]

    def tell(self, key: str, value: str = "") -> str:
        """Give every rank the value of rank 0. A key is used once in a process's life."""
        if self.leads:
            self.store.set(key, value)
        return str(self.store.get(key), "utf-8")

    def send(self, owner: int, data: bytes, size: int) -> bytes:
        """Give every rank the bytes that one has; all must call it, knowing their size."""
        if self.world_size == 1:
            return data
        mine = owner == self.rank
        whole = (
            torch.frombuffer(bytearray(data), dtype=torch.uint8)
            if mine
            else torch.empty(size, dtype=torch.uint8)
        )
        for part in whole.split(_SENT_AT_ONCE):
            sent = part.to(self.device)
            dist.broadcast(sent, owner)
            part.copy_(sent)
        return data if mine else whole.numpy().tobytes()

    def follow(self, key: str) -> None:
        """Let rank 0 come first; the others wait for it, but not for long, and not for one that is gone."""
        if self.leads:
            self.store.set(key, "")
            return
        with suppress(RuntimeError):
            self.store.wait([key], timedelta(seconds=_FOLLOW_SECONDS))

    def refuse(self) -> None:
        """Leave where all ranks find the same wrong: rank 0, with the store, once others have found it."""
        with suppress(RuntimeError):
            self.store.set(f"refused/{self.rank}", "")
            if self.leads:
                others = [f"refused/{rank}" for rank in range(self.world_size)]
                self.store.wait(others, timedelta(seconds=_REFUSE_SECONDS))

    def part(self) -> None:
        """Take leave. Rank 0, whose process may keep the store, goes last: others still read its last word.

        Raises:
            RuntimeError: a rank did not come to its end.
        """
        self.store.set(f"part/{self.rank}", "")
        if self.leads:
            self.store.wait([f"part/{rank}" for rank in range(self.world_size)])

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all ranks, in place; returns it."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values


def join(
    timeouts: TimeoutConfig,
    environment: Mapping[str, str] = os.environ,
    backend: Backend = "auto",
    patience: float | None = None,
) -> Mesh:
    """Wait for all ranks and connect them; alone, where no launcher set `RANK`.

    Args:
        timeouts: of the run.
        environment: where the launcher says who this is.
        backend: what is to carry collectives.
        patience: seconds for all ranks to arrive; `timeouts.rendezvous` if left out.

    Raises:
        AbsentRankError: not all ranks came in time.
        ConfigError: a launcher's variables make no sense, or the backend cannot be had here.
    """
    node = environment.get("NODE_NAME") or socket.gethostname()
    if "RANK" not in environment:
        return Mesh(0, 1, _device(0), node, dist.HashStore())
    check_place(environment)
    device = _device(int(environment.get("LOCAL_RANK", "0")))
    choice = choose(backend, device)
    if backend == "mpi" and _MPI_RANK not in environment:
        raise ConfigError(["backend: got 'mpi', but mpirun did not start this process; do that, or set auto"])
    store, rank, world_size = meet(patience or timeouts.rendezvous, environment)
    # The ranks now wait for each other's saves and loads; `Pulse` finds out who is gone long before that.
    store.set_timeout(timedelta(seconds=max(timeouts.rendezvous, timeouts.save)))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group(
            choice.backend,
            store=dist.PrefixStore("group", store),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeouts.collective),
        )
    return Mesh(rank, world_size, device, node, dist.PrefixStore("training", store), choice=choice)


def is_lost_rank(error: BaseException) -> bool:
    """Whether an error means that another rank, or the way to it, is gone."""
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))


def _device(local_rank: int) -> torch.device:
    return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
