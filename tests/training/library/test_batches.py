"""Loaders of all kinds go on in the middle of a pass, in the order that it began with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from trainyard_train import ConfigError
from trainyard_train.data.batches import Batches
from trainyard_train.parallelism.mesh import Mesh


class Lazy(DataLoader[int]):
    """Begins when its first batch is asked for, as Accelerate's."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        yield from super().__iter__()


def batches(kind: type[DataLoader[int]], per_step: int = 1) -> Batches[Any]:
    mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
    loader = kind(torch.arange(20), batch_size=2, shuffle=True)  # type: ignore[arg-type]
    return Batches("batches", loader, mesh, per_step, 0, lambda: 0)


@pytest.mark.parametrize("kind", [DataLoader, Lazy])
def test_the_order_is_that_of_the_pass_that_was_begun(kind: type[DataLoader[int]]) -> None:
    torch.manual_seed(1)
    seen, states = [], []
    one = batches(kind)
    for batch in one:
        one.finish_step()
        seen.append(batch.tolist())
        states.append((one.state_dict(), one.private(), torch.get_rng_state()))
    torch.manual_seed(7)
    other = batches(kind)
    state, private, generator = states[3]
    other.load_state_dict(state)
    other.load_private(private)
    torch.set_rng_state(generator)
    assert [batch.tolist() for batch in other] == seen[4:]


def test_steps_that_take_more_batches_than_they_say_are_refused() -> None:
    one = iter(found := batches(DataLoader))
    next(one)
    next(one)
    with pytest.raises(ConfigError, match=r"batches: a step took 2 batches; allowed: 1 \(per_step\)"):
        found.finish_step()
