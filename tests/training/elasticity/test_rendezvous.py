"""The rendezvous of ranks in a store that still has the keys of dead ranks."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch.distributed as dist

from trainyard_train.elasticity.rendezvous import own_round


def rendezvous(store: dist.Store, world_size: int, order: list[int]) -> list[dist.Store]:
    """Let ranks arrive in this order; return each rank's part of the store."""
    with ThreadPoolExecutor(world_size) as pool:
        found = {rank: pool.submit(own_round, store, rank, world_size, 60) for rank in order}
        return [found[rank].result() for rank in range(world_size)]


def test_all_ranks_of_a_round_share_a_part_of_the_store_that_no_other_round_has() -> None:
    store = dist.HashStore()
    for number, world_size in enumerate((2, 2, 3, 1, 2, 4)):
        for order in (list(range(world_size)), list(reversed(range(world_size)))):
            parts = rendezvous(store, world_size, order)
            assert not parts[-1].check(["here"]), "an earlier round has written to it"
            parts[0].set("here", str(number))
            assert {part.get("here") for part in parts} == {str(number).encode()}


def test_rank_0_does_not_take_a_dead_ranks_key_for_a_rank_that_has_arrived() -> None:
    store = dist.HashStore()
    rendezvous(store, 2, [0, 1])
    with pytest.raises(TimeoutError):
        own_round(store, 0, 2, 0.3)


def test_a_rank_does_not_join_a_round_that_is_over() -> None:
    store = dist.HashStore()
    rendezvous(store, 2, [0, 1])
    with pytest.raises(TimeoutError):
        own_round(store, 1, 2, 0.3)
