"""The mesh of ranks: its axes, gathers through the store, and waits that end when a peer has failed."""

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.processes import TIMEOUT_SECONDS
from trainyard_train.config_base import ConfigError
from trainyard_train.parallelism import mesh
from trainyard_train.parallelism.mesh import Mesh, is_peer_failure


@pytest.mark.parametrize(
    ("error", "peer_failed"),
    [
        (RuntimeError("[gloo/transport/tcp/pair.cc:545] Connection closed by peer"), True),
        (dist.DistNetworkError("Broken pipe"), True),
        (dist.DistBackendError("NCCL error: Failed to initialize any NET plugin"), False),
        (RuntimeError("shape '[2]' is invalid"), False),
        (OSError("No space left on device"), False),
    ],
)
def test_a_failed_peer_is_distinguished_from_an_own_error(error: Exception, peer_failed: bool) -> None:
    assert is_peer_failure(error) is peer_failed


def coordinates(world_size: int, tensor: int, pipeline: int) -> list[tuple[int, int]]:
    """Return the pipeline stage and the data rank of each rank."""
    ranks = [
        Mesh(rank, world_size, torch.device("cpu"), "node", dist.HashStore()) for rank in range(world_size)
    ]
    shaped = [rank.shaped(tensor, pipeline) for rank in ranks]
    return [(mesh.stage, mesh.data_rank) for mesh in shaped]


def test_ranks_fill_a_mesh_of_stages_data_and_tensor() -> None:
    assert coordinates(4, 1, 1) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert coordinates(4, 2, 1) == [(0, 0), (0, 0), (0, 1), (0, 1)]
    assert coordinates(4, 1, 2) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert coordinates(8, 2, 2) == [(0, 0), (0, 0), (0, 1), (0, 1), (1, 0), (1, 0), (1, 1), (1, 1)]


def test_ranks_that_do_not_fill_the_mesh_are_refused() -> None:
    with pytest.raises(ConfigError, match="got 6 ranks; allowed: a multiple of tensor × pipeline = 2 × 2"):
        coordinates(6, 2, 2)


def test_a_gather_asks_the_store_as_often_as_there_are_ranks() -> None:
    asked: list[str] = []

    class CountingStore(dist.HashStore):
        def set(self, key: str, value: str) -> None:
            asked.append("set")
            super().set(key, value)

        def get(self, key: str) -> bytes:
            asked.append("get")
            return bytes(super().get(key))

        def multi_get(self, keys: list[str]) -> list[bytes]:
            asked.append("multi_get")
            return list(super().multi_get(keys))

    store, count = CountingStore(), 12
    ranks = [Mesh(rank, count, torch.device("cpu"), "node", store) for rank in range(count)]
    with ThreadPoolExecutor(count) as pool:
        found = list(pool.map(lambda mesh: mesh.gather("key", f"“{mesh.rank}”"), reversed(ranks)))
    assert found == [[f"“{rank}”" for rank in range(count)]] * count
    assert len(asked) == 2 * count + 2


def test_others_wait_for_rank_0_but_not_after_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[list[str]] = []

    class LeaderFollowsStore(dist.HashStore):
        def wait(self, keys: list[str], timeout: timedelta) -> None:  # type: ignore[override]
            waited.append(keys)
            if keys == ["reached"]:
                leader.follow("reached")
            super().wait(keys, timeout)

    store = LeaderFollowsStore()
    leader, other = (Mesh(rank, 2, torch.device("cpu"), "node", store) for rank in (0, 1))
    other.follow("reached")
    monkeypatch.setattr(mesh, "_FOLLOW_SECONDS", 0.01)
    other.follow("never")
    assert waited == [["reached"], ["never"]]


def test_a_rank_that_refuses_waits_for_all_but_not_for_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    store = dist.HashStore()
    first, second, third = (Mesh(rank, 3, torch.device("cpu"), "node", store) for rank in range(3))
    with ThreadPoolExecutor() as pool:
        refusals = [pool.submit(each.refuse) for each in (first, third)]
        assert not wait(refusals, timeout=0.2).done, "a rank that has yet to connect would not find them"
        second.refuse()
        assert not wait(refusals, timeout=TIMEOUT_SECONDS).not_done
    monkeypatch.setattr(mesh, "_REFUSE_SECONDS", 0.01)
    Mesh(1, 2, torch.device("cpu"), "node", dist.HashStore()).refuse()
