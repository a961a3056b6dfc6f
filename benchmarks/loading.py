"""Benchmark: wall and CPU time to load one picture from shards (read, decode, random crop), against
WebDataset and torchdata.

All read the same shards, from a disk and from an S3 server on this host, and decode with the same functions,
by two threads or two processes. What differs is how a sample is found, fetched, shuffled and handed over.
WebDataset streams whole shards and shuffles a buffer (from S3 by curl, as it does by itself). torchdata's
StatefulDataLoader asks a dataset for samples by number, which reads the bytes that our index names (from S3
by boto3, a range for each). Ours is the only one with one order for all ranks.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.figures import Figure, Repeats, in_both_orders
from benchmarks.peers import reach
from engine.paths import Paths
from trainyard_train.data.loader import GlobalOrder, Loader
from trainyard_train.data.pictures import Pictures, Table, decode, find, normalise, pack

COUNT, SIDE, BATCH, WORKERS = 768, 224, 32, 2
ROUNDS = int(os.environ.get("TRAINYARD_BENCH_ROUNDS", "3"))
"""Rounds, each of which runs the arms in the order A B C C B A."""
BUCKET = "pictures"
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1"}
Epoch = Callable[[], Iterator[torch.Tensor]]
"""Reads one epoch; yields the classes of each batch."""


@dataclass(frozen=True)
class EpochTimes:
    """Times of one epoch, in milliseconds per picture."""

    wall_ms: float
    cpu_ms: float
    """CPU time of this process and of its worker processes, without the server's."""
    class_counts: tuple[int, ...]
    """Number of pictures of each class that the epoch read: equal in all arms."""


def measure() -> list[Figure]:
    """Read epoch after epoch with each, alternating; the first of each starts threads and processes."""
    reach()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, _s3(Path(folder) / "served") as served:
        shards = _make_shards(Path(folder))
        shutil.copytree(shards, served / BUCKET)
        return [*_compare("a disk", str(shards)), *_compare("S3", f"s3://{BUCKET}")]


def _compare(where: str, location: str) -> list[Figure]:
    table = find(location)
    arms = {
        "trainyard": _ours(location, table),
        "WebDataset": _webdataset(location, table),
        "torchdata": _torchdata(location, table),
    }
    if len({_timed(arm).class_counts for arm in arms.values()}) != 1:
        raise ValueError(f"{where}: the arms' epochs differ in their classes")
    taken: dict[str, list[EpochTimes]] = {name: [] for name in arms}

    def epoch(name: str) -> float:
        taken[name].append(_timed(arms[name]))
        return taken[name][-1].wall_ms

    in_both_orders({name: lambda name=name: epoch(name) for name in arms}, ROUNDS)  # type: ignore[misc]
    return [
        _figure(f"loading a picture of 500 × 400 from shards on {where}", clock, taken, peer)
        for peer in ("WebDataset", "torchdata")
        for clock in ("wall_ms", "cpu_ms")
    ]


def _figure(claim: str, clock: str, taken: Mapping[str, list[EpochTimes]], peer: str) -> Figure:
    ours, theirs = (tuple(getattr(each, clock) for each in taken[name]) for name in ("trainyard", peer))
    ratio = median(one / other for one, other in zip(ours, theirs, strict=True))
    what = "CPU time of " if clock == "cpu_ms" else ""
    return Figure(
        f"{what}{claim} (median of paired ratios {ratio:.2f})",
        Repeats("trainyard", "ms", ours),
        at_most=1.0,
        peer=Repeats(peer, "ms", theirs),
    )


def _timed(epoch: Epoch) -> EpochTimes:
    before = _cpu_seconds()
    begin = time.monotonic()
    targets = torch.cat(list(epoch()))
    each = 1000 / len(targets)
    elapsed, cpu = time.monotonic() - begin, _cpu_seconds() - before
    return EpochTimes(each * elapsed, each * cpu, tuple(torch.bincount(targets).tolist()))


def _cpu_seconds() -> float:
    """CPU seconds of this process, of its loaders' workers, and of their child processes."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *(child for child in me.children(recursive=True) if child.name() != "versitygw")):
        times = process.cpu_times()
        total += (
            times.user + times.system + (0 if process == me else times.children_user + times.children_system)
        )
    return total


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

    urls = [_stream(location, name) for name in table.files]
    samples = webdataset.WebDataset(urls, shardshuffle=len(urls)).shuffle(COUNT)
    tuples = samples.to_tuple("jpg", "cls").map_tuple(_normalised, int).batched(BATCH, partial=True)
    loader: DataLoader[Any] = DataLoader(
        tuples, batch_size=None, num_workers=WORKERS, persistent_workers=True, prefetch_factor=2
    )

    def epoch() -> Iterator[torch.Tensor]:
        for _, targets in loader:
            yield torch.as_tensor(targets)

    return epoch


def _stream(location: str, name: str) -> str:
    if not location.startswith("s3://"):
        return f"{location}/{name}"
    import boto3
    from botocore.config import Config

    client = boto3.client("s3", config=Config(signature_version="s3v4"))
    request = {"Bucket": BUCKET, "Key": name}
    url = client.generate_presigned_url("get_object", Params=request, ExpiresIn=86400)
    return f"pipe:curl --silent --fail '{url}'"


def _torchdata(location: str, table: Table) -> Epoch:
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(
        ByNumber(location, table),
        BATCH,
        shuffle=True,
        num_workers=WORKERS,
        persistent_workers=True,
        prefetch_factor=2,
    )

    def epoch() -> Iterator[torch.Tensor]:
        for _, targets in loader:
            yield targets

    return epoch


@dataclass
class ByNumber(Dataset[tuple[torch.Tensor, int]]):
    """Dataset for torchdata as a team would write it, given the index."""

    location: str
    table: Table

    def __len__(self) -> int:
        return len(self.table.records)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        file, start, size, kind = map(int, self.table.records[number])
        name = self.table.files[file]
        if self.location.startswith("s3://"):
            wanted = f"bytes={start}-{start + size - 1}"
            data = self._client.get_object(Bucket=BUCKET, Key=name, Range=wanted)["Body"].read()
        else:
            with Path(self.location, name).open("rb") as shard:
                shard.seek(start)
                data = shard.read(size)
        return _normalised(data), kind

    @cached_property
    def _client(self) -> Any:  # noqa: ANN401
        import boto3

        return boto3.client("s3")  # in each worker, since it does not survive a fork


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


@contextmanager
def _s3(folder: Path) -> Iterator[Path]:
    """Serve subfolders as S3 buckets, and set the clients' environment; yields the folder."""
    folder.mkdir()
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"
    program = str(Paths.from_environment().bin / "versitygw")
    keys = {"ROOT_ACCESS_KEY": KEYS["AWS_ACCESS_KEY_ID"], "ROOT_SECRET_KEY": KEYS["AWS_SECRET_ACCESS_KEY"]}
    command = [program, "--quiet", "--port", address, "posix", str(folder)]
    server = subprocess.Popen(command, env=os.environ | keys, stdout=subprocess.DEVNULL)
    os.environ.update(KEYS, AWS_ENDPOINT_URL=f"http://{address}")
    try:
        _wait_for(address)
        yield folder
    finally:
        server.kill()
        server.wait()


def _wait_for(address: str) -> None:
    host, _, port = address.partition(":")
    for _ in range(500):
        with socket.socket() as client:
            if client.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"the S3 server does not listen at {address}")
