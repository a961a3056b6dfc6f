"""The mesh of ranks: gathers through the store, and waits that end when a peer has failed."""

from concurrent.futures import ThreadPoolExecutor, wait
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from tests.processes import TIMEOUT_SECONDS
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


def test_a_wait_on_an_own_connection_blocks_no_other_where_pytorch_clones_no_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(dist.Store, "clone")
    server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    stores = [server, dist.TCPStore("127.0.0.1", server.port, is_master=False)]
    nested = [dist.PrefixStore("training", dist.PrefixStore("round", store)) for store in stores]
    ranks = [Mesh(rank, 2, torch.device("cpu"), "node", store) for rank, store in enumerate(nested)]
    own = [rank.with_own_connection("saver") for rank in ranks]
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(own[1].store.get, "step")
        ranks[1].store.set("heard", "")
        assert not waits.done()
        own[0].store.set("step", "7")
        assert waits.result(TIMEOUT_SECONDS) == b"7"
    assert not server.check(["step"])
