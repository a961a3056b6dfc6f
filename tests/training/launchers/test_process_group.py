"""Ranks join a process group by the variables that torchrun or mpirun has set, or train alone without any."""

import re
import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from trainyard_train.config_base import ConfigError
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.launchers import process_group
from trainyard_train.launchers.process_group import adopt_launcher_settings, join


def test_variables_that_a_launcher_has_set_are_not_overwritten() -> None:
    environment = {"OMPI_COMM_WORLD_RANK": "1", "RANK": "5", "WORLD_SIZE": "8"}
    adopt_launcher_settings(environment)
    assert (environment["RANK"], environment["WORLD_SIZE"]) == ("5", "8")
    assert "MASTER_ADDR" not in environment


class Mpi(ModuleType):
    """A fake of mpi4py's MPI module, for the second of two ranks."""

    finalized = False
    COMM_WORLD = SimpleNamespace(
        Get_rank=lambda: 1, Get_size=lambda: 2, bcast=lambda address: ("10.0.0.1", 29400)
    )

    def Finalize(self) -> None:  # noqa: N802
        self.finalized = True


def test_mpi_gives_rank_and_address_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    library, package = Mpi("mpi4py.MPI"), ModuleType("mpi4py")
    package.MPI = library  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mpi4py", package)
    environment = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    adopt_launcher_settings(environment)
    assert (environment["RANK"], environment["MASTER_ADDR"]) == ("1", "10.0.0.1")
    assert library.finalized


def test_alone_there_is_one_rank_and_no_process_group() -> None:
    mesh = join(TimeoutConfig(), {"NODE_NAME": "laptop"})
    assert (mesh.rank, mesh.world_size, mesh.node, mesh.is_rank0) == (0, 1, "laptop", True)
    assert not dist.is_initialized()
    assert mesh.gather("key", "value") == ["value"]
    assert mesh.broadcast("other", "word") == "word"


@pytest.mark.parametrize(("gpu", "backend"), [(True, "nccl"), (False, "gloo")])
def test_a_group_leaves_room_for_a_start_and_nccl_connects_to_the_ranks_own_gpu(
    monkeypatch: pytest.MonkeyPatch, gpu: bool, backend: str
) -> None:
    """NCCL's watchdog counts from where a collective was enqueued, while a peer may still load or compile."""
    environment = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "3", "MASTER_ADDR": "a", "MASTER_PORT": "1"}
    begun: dict[str, object] = {}
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr("torch.cuda.set_device", lambda device: None)
    monkeypatch.setattr(process_group, "rendezvous", lambda *_: (dist.HashStore(), 1, 2))
    monkeypatch.setattr(dist, "init_process_group", lambda name, **how: begun.update(how, name=name))
    join(TimeoutConfig(rendezvous=300, save=400, collective=20), environment)
    assert (begun["name"], begun["timeout"]) == (backend, timedelta(seconds=420))
    assert begun["device_id"] == (torch.device("cuda", 3) if gpu else None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"RANK": "first"}, "RANK: got 'first'; allowed: a whole number; start it by torchrun"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE: got ''; allowed: a whole number"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK: got '-1'; allowed: a whole number"),
        ({"MASTER_PORT": "a", "MASTER_ADDR": ""}, "MASTER_ADDR: got ''; allowed: the host of rank 0"),
        ({"RANK": "2"}, "RANK: got 2; allowed: 0 to 1, one less than WORLD_SIZE"),
    ],
)
def test_an_impossible_rank_is_reported_before_the_rendezvous(
    change: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}
    monkeypatch.setattr(dist, "rendezvous", lambda *_, **__: pytest.fail("somebody was waited for"))
    with pytest.raises(ConfigError, match=re.escape(message)):
        join(TimeoutConfig(), right | change)
