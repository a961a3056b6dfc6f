"""Whoever starts the ranks, they find each other."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from trainyard_train.config_base import ConfigError
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.launchers.process_group import adopt_launcher_settings, join, leave_mpi
from trainyard_train.parallelism import mesh
from trainyard_train.parallelism.config import Backend
from trainyard_train.parallelism.mesh import Mesh, is_lost_rank


def test_what_a_launcher_has_set_stands() -> None:
    environment = {"OMPI_COMM_WORLD_RANK": "1", "RANK": "5", "WORLD_SIZE": "8"}
    adopt_launcher_settings(environment)
    assert (environment["RANK"], environment["WORLD_SIZE"]) == ("5", "8")
    assert "MASTER_ADDR" not in environment


class Mpi(ModuleType):
    """What is asked of mpi4py, for the second of two ranks."""

    finalized = False
    COMM_WORLD = SimpleNamespace(
        Get_rank=lambda: 1, Get_size=lambda: 2, bcast=lambda place: ("10.0.0.1", 29400)
    )

    def Is_initialized(self) -> bool:  # noqa: N802
        return True

    def Is_finalized(self) -> bool:  # noqa: N802
        return self.finalized

    def Finalize(self) -> None:  # noqa: N802
        self.finalized = True


@pytest.mark.parametrize("backend", ["auto", "mpi"])
def test_mpi_ends_at_once_unless_it_carries_the_collectives(
    monkeypatch: pytest.MonkeyPatch, backend: Backend
) -> None:
    library, package = Mpi("mpi4py.MPI"), ModuleType("mpi4py")
    package.MPI = library  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mpi4py", package)
    monkeypatch.setitem(sys.modules, "mpi4py.MPI", library)
    environment = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    adopt_launcher_settings(environment, backend)
    assert (environment["RANK"], environment["MASTER_ADDR"]) == ("1", "10.0.0.1")
    assert library.finalized == (backend != "mpi")
    leave_mpi()
    assert library.finalized


def test_mpi_carries_collectives_of_ranks_that_it_has_started_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_mpi_available", lambda: True)
    place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}
    with pytest.raises(ConfigError, match="backend: got 'mpi', but mpirun did not start this process"):
        join(TimeoutConfig(), place, "mpi")


def test_alone_there_is_one_rank_and_no_process_group() -> None:
    mesh = join(TimeoutConfig(), {"NODE_NAME": "laptop"})
    assert (mesh.rank, mesh.world_size, mesh.node, mesh.leads) == (0, 1, "laptop", True)
    assert not dist.is_initialized()
    assert mesh.gather("key", "value") == ["value"]
    assert mesh.tell("other", "word") == "word"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"RANK": "first"}, "RANK: got 'first'; allowed: a whole number; start it by torchrun"),
        ({"WORLD_SIZE": ""}, "WORLD_SIZE: got ''; allowed: a whole number"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK: got '-1'; allowed: a whole number"),
        ({"MASTER_PORT": "a", "MASTER_ADDR": ""}, "MASTER_ADDR: got ''; allowed: the host of rank 0"),
        ({"RANK": "2"}, "RANK: got 2; allowed: 0 to 1, one less than WORLD_SIZE"),
    ],
)
def test_a_place_that_makes_no_sense_is_named_before_anyone_is_waited_for(
    change: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29400"}
    monkeypatch.setattr(dist, "rendezvous", lambda *_, **__: pytest.fail("somebody was waited for"))
    with pytest.raises(ConfigError, match=re.escape(told)):
        join(TimeoutConfig(), right | change)


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:545] Connection closed by peer"), True),
        (dist.DistNetworkError("Broken pipe"), True),
        (RuntimeError("shape '[2]' is invalid"), False),
        (OSError("No space left on device"), False),
    ],
)
def test_a_lost_rank_is_told_from_a_mistake(error: Exception, lost: bool) -> None:
    assert is_lost_rank(error) is lost


def places(world_size: int, tensor: int, pipeline: int) -> list[tuple[int, int]]:
    ranks = [
        Mesh(rank, world_size, torch.device("cpu"), "node", dist.HashStore()) for rank in range(world_size)
    ]
    shaped = [rank.shaped(tensor, pipeline) for rank in ranks]
    return [(mesh.stage, mesh.data_rank) for mesh in shaped]


def test_ranks_fill_a_mesh_of_stages_data_and_tensor() -> None:
    assert places(4, 1, 1) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert places(4, 2, 1) == [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert places(4, 1, 2) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert places(8, 2, 2) == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)]


def test_ranks_that_do_not_fill_the_mesh_are_refused() -> None:
    with pytest.raises(ConfigError, match="got 6 ranks; allowed: a multiple of tensor × pipeline = 2 × 2"):
        places(6, 2, 2)


def test_others_wait_for_rank_0_but_not_for_one_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[list[str]] = []

    class Store(dist.HashStore):
        def wait(self, keys: list[str], timeout: timedelta) -> None:  # type: ignore[override]
            waited.append(keys)
            if keys == ["left"]:
                leader.follow("left")
            super().wait(keys, timeout)

    store = Store()
    leader, other = (Mesh(rank, 2, torch.device("cpu"), "node", store) for rank in (0, 1))
    other.follow("left")
    monkeypatch.setattr(mesh, "_FOLLOW_SECONDS", 0.01)
    other.follow("never")
    assert waited == [["left"], ["never"]]
