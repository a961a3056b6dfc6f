"""Benchmark: wall and CPU time to load one picture from shards on a disk (read, decode, random crop), against
WebDataset.

Both read the same shards, and decode with the same functions, by two threads or two processes. What differs
is how a sample is found, fetched, shuffled and handed over: WebDataset streams whole shards and shuffles a
buffer. Ours is the only one with one order for all ranks.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils.data import DataLoader

from benchmarks.figures import Figure, Repeats, in_both_orders
from benchmarks.peers import reach
from trainyard_train.data.loader import GlobalOrder, Loader
from trainyard_train.data.pictures import Pictures, Table, decode, find, normalise, pack

COUNT, SIDE, BATCH, WORKERS = 768, 224, 32, 2
ROUNDS = int(os.environ.get("TRAINYARD_BENCH_ROUNDS", "3"))
"""Rounds, each of which runs the arms in the order A B C C B A."""
PEER = "WebDataset"
Epoch = Callable[[], Iterator[torch.Tensor]]
"""Reads one epoch; yields the classes of each batch."""


@dataclass(frozen=True)
class EpochTimes:
    """Times of one epoch, in milliseconds per picture."""

    wall_ms: float
    cpu_ms: float
    """CPU time of this process and of its worker processes."""
    class_counts: tuple[int, ...]
    """Number of pictures of each class that the epoch read: equal in all arms."""


def measure() -> list[Figure]:
    """Read epoch after epoch with each, alternating; the first of each starts threads and processes."""
    reach()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        shards = str(_make_shards(Path(folder)))
        table = find(shards)
        return _compare({"trainyard": _ours(shards, table), PEER: _webdataset(shards, table)})


def _compare(arms: Mapping[str, Epoch]) -> list[Figure]:
    if len({_timed(arm).class_counts for arm in arms.values()}) != 1:
        raise ValueError("the arms' epochs differ in their classes")
    taken: dict[str, list[EpochTimes]] = {name: [] for name in arms}

    def epoch(name: str) -> float:
        taken[name].append(_timed(arms[name]))
        return taken[name][-1].wall_ms

    in_both_orders({name: lambda name=name: epoch(name) for name in arms}, ROUNDS)  # type: ignore[misc]
    return [_figure(clock, taken) for clock in ("wall_ms", "cpu_ms")]


def _figure(clock: str, taken: Mapping[str, list[EpochTimes]]) -> Figure:
    ours, theirs = (tuple(getattr(each, clock) for each in taken[name]) for name in ("trainyard", PEER))
    ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
    what = "CPU time of " if clock == "cpu_ms" else ""
    return Figure(
        f"{what}loading a picture of 500 × 400 from shards (median of paired ratios {ratio:.2f})",
        Repeats("trainyard", "ms", ours),
        at_most=1.0,
        peer=Repeats(PEER, "ms", theirs),
    )


def _timed(epoch: Epoch) -> EpochTimes:
    before = _cpu_seconds()
    begin = time.monotonic()
    targets = torch.cat(list(epoch()))
    each = 1000 / len(targets)
    elapsed, cpu = time.monotonic() - begin, _cpu_seconds() - before
    return EpochTimes(each * elapsed, each * cpu, tuple(torch.bincount(targets).tolist()))


def _cpu_seconds() -> float:
    """CPU seconds of this process and of its loaders' workers."""
    me = psutil.Process()
    times = [process.cpu_times() for process in (me, *me.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def _ours(location: str, table: Table) -> Epoch:
    pictures = Pictures(location, table, SIDE, seed=1, workers=WORKERS)
    loader = Loader(pictures, GlobalOrder(COUNT, seed=1), BATCH, 0, 1)
    cursor = 0

    def epoch() -> Iterator[torch.Tensor]:
        nonlocal cursor
        for _ in range(COUNT // BATCH):
            yield loader.batch(cursor).targets
            cursor += BATCH

    return epoch


def _webdataset(location: str, table: Table) -> Epoch:
    import webdataset

    urls = [f"{location}/{name}" for name in table.files]
    samples = webdataset.WebDataset(urls, shardshuffle=len(urls)).shuffle(COUNT)
    tuples = samples.to_tuple("jpg", "cls").map_tuple(_normalised, int).batched(BATCH, partial=True)
    loader: DataLoader[Any] = DataLoader(
        tuples, batch_size=None, num_workers=WORKERS, persistent_workers=True, prefetch_factor=2
    )

    def epoch() -> Iterator[torch.Tensor]:
        for _, targets in loader:
            yield torch.as_tensor(targets)

    return epoch


def _normalised(data: bytes) -> torch.Tensor:
    sample = np.empty((3, SIDE, SIDE), dtype=np.float32)
    normalise(decode(data, SIDE, np.random.default_rng()), sample)
    return torch.from_numpy(sample)


def _make_shards(folder: Path) -> Path:
    """Parts of the two photographs that come with scikit-learn, as JPEGs."""
    from PIL import Image

    package = importlib.util.find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations
    photographs = Path(package.submodule_search_locations[0]) / "datasets" / "images"
    chance = np.random.default_rng(1)
    for name in ("china", "flower"):
        (folder / "folders" / name).mkdir(parents=True)
        with Image.open(photographs / f"{name}.jpg") as photograph:
            for number in range(COUNT // 2):
                x, y = int(chance.integers(0, 140)), int(chance.integers(0, 27))
                photograph.crop((x, y, x + 500, y + 400)).save(folder / "folders" / name / f"{number}.jpg")
    pack(folder / "shards", str(folder / "folders"), 128)
    return folder / "shards"
