"""Benchmark: time and store operations until each of 1,000 ranks has a value from every rank through a
TCPStore, against the former algorithm, in which each rank reads every value with a separate request.

Every rank is a thread with its own connection to one TCPStore on this host's loopback. In both arms all
threads share one interpreter.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count

import torch
import torch.distributed as dist

from benchmarks.figures import Figure, Repeats, alternating
from trainyard_train.parallelism.mesh import Mesh

RANKS = 1000
VALUE = "node-0123"
TIMEOUT = timedelta(minutes=10)
Gather = Callable[[Mesh, str], list[str]]


@dataclass
class Counted:
    """One rank's store, which counts its requests."""

    store: dist.Store
    operations: int = field(default=0, init=False)

    def set(self, key: str, value: str) -> None:
        self.operations += 1
        self.store.set(key, value)

    def get(self, key: str) -> bytes:
        self.operations += 1
        return bytes(self.store.get(key))

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self.operations += 1
        return self.store.multi_get(keys)


def measure() -> list[Figure]:
    """Gather twice with each method, in the order A B B A."""
    server = dist.TCPStore("127.0.0.1", 0, None, True, TIMEOUT, wait_for_workers=False)
    stores = [
        Counted(dist.TCPStore("127.0.0.1", server.port, None, False, TIMEOUT, wait_for_workers=False))
        for _ in range(RANKS)
    ]
    operations: dict[Gather, int] = {}
    keys = count()

    def seconds(gather: Gather) -> float:
        taken, operations[gather] = _gather(stores, gather, f"key-{next(keys)}")
        return taken

    ours, peer = alternating(lambda: seconds(_present), lambda: seconds(_former))
    arms = ("trainyard", "every rank asks for every value")
    return [
        Figure(
            f"gather over {RANKS:,} ranks, operations of the store",
            Repeats(arms[0], "", (operations[_present],)),
            at_most=0.01,
            peer=Repeats(arms[1], "", (operations[_former],)),
        ),
        Figure(
            f"gather over {RANKS:,} ranks, until the last one has all",
            Repeats(arms[0], "s", ours),
            at_most=0.1,
            peer=Repeats(arms[1], "s", peer),
        ),
    ]


def _present(mesh: Mesh, key: str) -> list[str]:
    return mesh.gather(key, VALUE)


def _former(mesh: Mesh, key: str) -> list[str]:
    mesh.store.set(f"{key}/{mesh.rank}", VALUE)
    return [str(mesh.store.get(f"{key}/{rank}"), "utf-8") for rank in range(mesh.world_size)]


def _gather(stores: list[Counted], gather: Gather, key: str) -> tuple[float, int]:
    """Seconds until all ranks have all values, and operations of all of them."""
    together = threading.Barrier(len(stores) + 1)

    def one(rank: int) -> float:
        mesh = Mesh(rank, RANKS, torch.device("cpu"), "node", stores[rank])  # type: ignore[arg-type]
        together.wait()
        assert gather(mesh, key) == [VALUE] * RANKS
        return time.monotonic()

    before = sum(store.operations for store in stores)
    with ThreadPoolExecutor(len(stores)) as pool:
        ends = [pool.submit(one, rank) for rank in range(len(stores))]
        together.wait()
        begin = time.monotonic()
        last = max(end.result() for end in ends)
    return last - begin, sum(store.operations for store in stores) - before
