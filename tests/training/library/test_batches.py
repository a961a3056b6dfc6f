"""`run.batches` resumes DataLoaders of all kinds in the middle of a pass, in the pass's original order."""

import random
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler

from trainyard_train import ConfigError
from trainyard_train.checkpointing import generators
from trainyard_train.data.batches import Batches
from trainyard_train.parallelism.mesh import Mesh

CPU = torch.device("cpu")


class Lazy(DataLoader[int]):
    """A loader that starts when its first batch is requested, as Accelerate's does."""

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        yield from super().__iter__()


def batches(kind: type[DataLoader[int]], per_step: int = 1) -> Batches[Any]:
    mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
    loader = kind(torch.arange(20), batch_size=2, shuffle=True)  # type: ignore[arg-type]
    return Batches("batches", loader, mesh, per_step, 0, lambda: 0)


@pytest.mark.parametrize("kind", [DataLoader, Lazy])
def test_a_resumed_pass_keeps_its_order(kind: type[DataLoader[int]]) -> None:
    torch.manual_seed(1)
    seen, states = [], []
    one = batches(kind)
    for batch in one:
        one.finish_step()
        seen.append(batch.tolist())
        states.append((one.state_dict(), one.private(), generators.capture(CPU)))
    torch.manual_seed(7)
    other = batches(kind)
    state, private, everywhere = states[3]
    other.load_state_dict(state)
    other.load_private(private, everywhere)
    torch.rand(5)  # whatever a program draws before its loop
    assert [batch.tolist() for batch in other] == seen[4:]
    assert torch.get_rng_state().equal(generators.decode(states[-1][2]["torch"]))


class Buckets(Sampler[list[int]]):
    """A sampler with a generator of its own, whose order depends on how many passes it has made."""

    def __init__(self, seed: object) -> None:
        self.chance, self.passes = random.Random(str(seed)), 0

    def __iter__(self) -> Iterator[list[int]]:
        order = list(range(20))
        self.chance.shuffle(order)
        first = self.passes % 2
        self.passes += 1
        yield from (order[at : at + 2] for at in range(first, 19, 2))


class Shard(Sampler[list[int]]):
    """A sampler that forwards another sampler's batches, as Accelerate's does on several ranks."""

    def __init__(self, seed: object) -> None:
        self.batch_sampler = Buckets(seed)

    def __iter__(self) -> Iterator[list[int]]:
        yield from self.batch_sampler


class Unseeded(Buckets):
    """A sampler whose order does not depend on anything that is saved."""

    def __init__(self, seed: object) -> None:
        super().__init__(seed)
        self.hidden = [random.Random(str(seed))]

    def __iter__(self) -> Iterator[list[int]]:
        yield from ([index] for index in self.hidden[0].sample(range(20), 20))


def _in_second_pass(kind: type[Any]) -> tuple[list[list[int]], list[list[int]]]:
    """Return a second pass's batches after the third, of a run that continues and of one that resumes."""
    mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
    epoch = 0
    one, other = (
        Batches(
            "batches",
            DataLoader(torch.arange(20), batch_sampler=kind(seed)),  # type: ignore[arg-type]
            mesh,
            1,
            0,
            lambda: epoch,
        )
        for seed in (1, 2)
    )
    for _ in one:
        one.finish_step()
    epoch, seen = 1, []
    for batch in one:
        one.finish_step()
        seen.append(batch.tolist())
        if len(seen) == 3:
            state, private, everywhere = one.state_dict(), one.private(), generators.capture(CPU)
    other.load_state_dict(state)
    other.load_private(private, everywhere)
    return seen[3:], [batch.tolist() for batch in other]


@pytest.mark.parametrize("kind", [Buckets, Shard])
def test_a_sampler_with_its_own_generator_and_count_repeats_its_order(kind: type[Sampler[list[int]]]) -> None:
    continued, resumed = _in_second_pass(kind)
    assert resumed == continued


def test_a_sampler_that_gives_another_order_is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    continued, resumed = _in_second_pass(Unseeded)
    assert resumed != continued
    assert "batches: the sampler's order differs from" in capfd.readouterr().err


def test_steps_that_take_more_batches_than_declared_are_refused() -> None:
    one = iter(found := batches(DataLoader))
    next(one)
    next(one)
    with pytest.raises(ConfigError, match=r"batches: a step took 2 batches; allowed: 1 \(per_step\)"):
        found.finish_step()


def test_a_loop_that_numbers_its_batches_resumes_with_their_numbers() -> None:
    one, other = batches(DataLoader), batches(DataLoader)
    for _ in one:
        one.finish_step()
        if one.batches_done == 4:
            state, private, everywhere = one.state_dict(), one.private(), generators.capture(CPU)
    assert one.batches_done == 0
    other.load_state_dict(state)
    other.load_private(private, everywhere)
    assert [(number, other.batch_index) for number, _ in enumerate(other, other.batches_done)] == [
        (number, number) for number in range(4, 10)
    ]
    assert [number for number, _ in enumerate(other, other.batches_done)] == [*range(10)]


@pytest.mark.parametrize("epoch", [0, None], ids=["epochs", "no epochs"])
def test_a_pass_that_only_reads_the_first_batch_is_not_resumed(epoch: int | None) -> None:
    torch.manual_seed(1)
    mesh = Mesh(0, 1, CPU, "node", dist.HashStore())
    loader: DataLoader[int] = DataLoader([*range(20)], batch_size=2, shuffle=True)  # type: ignore[arg-type]
    now: list[int | None] = [None]
    one, other = (Batches("batches", loader, mesh, 1, 0, lambda: now[0]) for _ in range(2))
    one.begin_run()
    next(iter(one))
    now[0], seen = epoch, []
    for batch in one:
        one.finish_step()
        seen.append(batch.tolist())
        if len(seen) == 3:
            state, private, everywhere = one.state_dict(), one.private(), generators.capture(CPU)
    other.load_state_dict(state)
    other.load_private(private, everywhere)
    now[0] = None
    assert len(next(iter(other))) == 2
    now[0] = epoch
    assert [batch.tolist() for batch in other] == seen[3:]


class Noise(Dataset[float]):
    """A dataset that draws from a generator of its transform."""

    def __init__(self) -> None:
        self.transforms = [SimpleNamespace(chance=np.random.default_rng(3))]

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> float:
        return float(self.transforms[0].chance.random())


class Stream(IterableDataset[int]):
    """A dataset that draws from Python's generator in the worker."""

    def __iter__(self) -> Iterator[int]:
        for _ in range(20):
            yield random.randrange(1000)


class Numbers(Dataset[int]):
    """A dataset that draws nothing, so that only the order of its samples differs."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize(
    ("data", "workers"),
    [(Noise, 0), (Noise, 1), (Stream, 1), (Numbers, 1)],
    ids=["own", "own, in a worker", "stream", "order"],
)
def test_what_a_dataset_draws_in_a_second_pass_is_drawn_again(data: type[Any], workers: int) -> None:
    mesh, epoch = Mesh(0, 1, CPU, "node", dist.HashStore()), 0
    fork = "fork" if workers else None
    one, other = (
        Batches(
            "batches",
            DataLoader(
                data(),
                batch_size=2,
                num_workers=workers,
                multiprocessing_context=fork,
                persistent_workers=workers > 0,
                shuffle=data is Numbers,
                generator=torch.Generator().manual_seed(4),
            ),
            mesh,
            1,
            0,
            lambda: epoch,
        )
        for _ in range(2)
    )
    for _ in one:
        one.finish_step()
    epoch, seen = 1, []
    for batch in one:
        one.finish_step()
        seen.append(batch.tolist())
        if len(seen) == 3:
            state, private, everywhere = one.state_dict(), one.private(), generators.capture(CPU)
    other.load_state_dict(state)
    other.load_private(private, everywhere)
    assert [batch.tolist() for batch in other] == seen[3:]
    one.close()
    other.close()
