"""Joins the ranks that a launcher (torchrun, mpirun, Kubeflow Trainer) has started into one process group,
and returns each rank's `Mesh`. Under mpirun it asks MPI for the variables that the other launchers set.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist

from trainyard_train.config_base import extra
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.rendezvous import check_environment, rendezvous
from trainyard_train.parallelism import accelerators
from trainyard_train.parallelism.config import Backend
from trainyard_train.parallelism.fabric import choose
from trainyard_train.parallelism.mesh import Mesh


def adopt_launcher_settings(environment: MutableMapping[str, str]) -> None:
    """Take rank and world from Open MPI, where that has started this process, into these variables."""
    if "RANK" not in environment and "OMPI_COMM_WORLD_RANK" in environment:
        environment.update(_ask_mpi(environment["OMPI_COMM_WORLD_LOCAL_RANK"]))


def _ask_mpi(local_rank: str) -> dict[str, str]:
    """Let rank 0 broadcast the address of the rendezvous."""
    with extra("mpi"):
        from mpi4py import MPI

    world = MPI.COMM_WORLD
    address_and_port = None
    if world.Get_rank() == 0:
        with socket.socket() as listener:
            listener.bind(("", 0))
            address = "127.0.0.1"
            with suppress(OSError):  # no resolver knows the names of many laptops
                address = socket.gethostbyname(socket.gethostname())
            address_and_port = (address, listener.getsockname()[1])
    address, port = world.bcast(address_and_port)
    ranks = {"RANK": str(world.Get_rank()), "WORLD_SIZE": str(world.Get_size()), "LOCAL_RANK": local_rank}
    MPI.Finalize()  # else mpirun takes an exit on a preemption notice for a crash
    return {**ranks, "MASTER_ADDR": address, "MASTER_PORT": str(port)}


def join(
    timeouts: TimeoutConfig,
    environment: Mapping[str, str] = os.environ,
    backend: Backend = "auto",
    rendezvous_seconds: float | None = None,
) -> Mesh:
    """Wait for all ranks and connect them; alone, where no launcher set `RANK`.

    Args:
        timeouts: timeouts of the run.
        environment: the variables by which the launcher identifies this rank.
        backend: backend of the collectives.
        rendezvous_seconds: seconds for all ranks to arrive; `timeouts.rendezvous` if left out.

    Raises:
        AbsentRankError: not all ranks joined in time.
        ConfigError: a launcher's variables make no sense, the backend is not available here, or the pod
            asked for GPUs that cannot be used.
    """
    accelerators.check(environment)
    node = environment.get("NODE_NAME") or socket.gethostname()
    if "RANK" not in environment:
        return Mesh(0, 1, _device(0), node, dist.HashStore())
    check_environment(environment)
    device = _device(int(environment.get("LOCAL_RANK", "0")))
    choice = choose(backend, device)
    store, rank, world_size = rendezvous(rendezvous_seconds or timeouts.rendezvous, environment)
    # The ranks now wait for each other's saves and loads; `Heartbeats` finds a failed rank long before that.
    store.set_timeout(timedelta(seconds=max(timeouts.rendezvous, timeouts.save)))
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if world_size > 1:
        dist.init_process_group(
            choice.backend,
            store=dist.PrefixStore("group", store),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=timeouts.watchdog),
            # With it NCCL connects now instead of in the first collective, and uses no other GPU.
            device_id=device if choice.backend == "nccl" else None,
        )
    return Mesh(rank, world_size, device, node, dist.PrefixStore("training", store), choice=choice)


def _device(local_rank: int) -> torch.device:
    return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
