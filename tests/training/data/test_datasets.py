"""The global order of samples: each once per epoch, the same for any number of ranks; and reading ahead."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.processes import TIMEOUT_SECONDS, wait_for
from trainyard_train.data.config import DataConfig
from trainyard_train.data.datasets import load_dataset
from trainyard_train.data.loader import AHEAD, GlobalOrder, Loader
from trainyard_train.data.samples import Samples

ORDER = GlobalOrder(num_samples=103, seed=7)


def test_an_epoch_holds_every_sample_once() -> None:
    assert sorted(ORDER.indices(0, 103).tolist()) == list(range(103))
    assert sorted(ORDER.indices(103, 103).tolist()) == list(range(103))


def test_epochs_and_seeds_have_separate_orders() -> None:
    orders = {
        tuple(GlobalOrder(103, seed).indices(103 * epoch, 103).tolist())
        for seed in (1, 2)
        for epoch in (0, 1)
    }
    assert len(orders) == 4


@given(start=st.integers(0, 1000), count=st.integers(1, 300), cut=st.integers(0, 300))
def test_the_stream_is_the_same_however_it_is_cut(start: int, count: int, cut: int) -> None:
    cut = min(cut, count - 1)
    parts = [ORDER.indices(start, cut)] if cut else []
    parts.append(ORDER.indices(start + cut, count - cut))
    assert torch.equal(torch.cat(parts), ORDER.indices(start, count))


@given(cursor=st.integers(0, 1000), per_rank=st.integers(1, 16))
def test_world_size_changes_who_reads_what_and_not_the_order(cursor: int, per_rank: int) -> None:
    four = torch.cat([ORDER.of_rank(cursor, per_rank, rank) for rank in range(4)])
    two = torch.cat([ORDER.of_rank(cursor, per_rank * 2, rank) for rank in range(2)])
    one = ORDER.of_rank(cursor, per_rank * 4, 0)
    assert torch.equal(four, one)
    assert torch.equal(two, one)


def test_a_run_that_resumes_with_other_world_sizes_skips_and_repeats_nothing() -> None:
    cursor, seen = 0, []
    for world_size, steps in ((2, 5), (1, 3), (4, 2), (3, 40)):
        for _ in range(steps):
            seen += [ORDER.of_rank(cursor, 4, rank) for rank in range(world_size)]
            cursor += 4 * world_size
    assert torch.equal(torch.cat(seen), ORDER.indices(0, cursor))


def test_the_digits_are_real_and_split_without_overlap() -> None:
    def parts(seed: int) -> list[Samples]:
        data = load_dataset(DataConfig(), context=0, seed=seed)
        return [source.take(torch.arange(len(source))) for source in (data.train, data.held_out)]

    train, held_out = parts(seed=3)
    assert len(train) + len(held_out) == 1797
    assert train.inputs.shape[1:] == (1, 8, 8)
    assert float(train.inputs.min()) == 0
    assert float(train.inputs.max()) == 1
    assert set(held_out.targets.tolist()) == set(range(10))
    assert torch.equal(parts(seed=3)[1].inputs, held_out.inputs)
    assert not torch.equal(parts(seed=4)[1].inputs, held_out.inputs)


@dataclass
class SlowSource:
    """A source that records requests, and serves them once the event is set."""

    released: Event = field(default_factory=Event)
    asked: list[list[int]] = field(default_factory=list)
    is_remote: bool = True

    def __len__(self) -> int:
        return 1000

    def take(self, indices: torch.Tensor) -> Samples:
        self.asked.append(indices.tolist())
        assert self.released.wait(TIMEOUT_SECONDS)
        return Samples(indices, indices)


def test_a_remote_source_is_read_ahead_each_batch_once_and_in_order() -> None:
    source = SlowSource()
    source.released.set()
    loader = Loader(source, ORDER, 4, data_rank=1, data_size=2)
    for cursor in range(0, 80, 8):
        assert torch.equal(loader.batch(cursor).targets, ORDER.of_rank(cursor, 4, 1))
    last = 80 - 8 + 8 * AHEAD
    wait_for(lambda: len(source.asked) > last // 8)
    assert sorted(source.asked) == sorted(ORDER.of_rank(at, 4, 1).tolist() for at in range(0, last + 1, 8))


def test_the_next_batches_are_read_while_one_is_in_use() -> None:
    source = SlowSource()
    loader = Loader(source, ORDER, 4, data_rank=0, data_size=1)
    with ThreadPoolExecutor(1) as training:
        first = training.submit(loader.batch, 0)
        wait_for(lambda: len(source.asked) >= AHEAD)
        assert not first.done()
        source.released.set()
        assert len(first.result()) == 4
