"""`Mesh`: a rank among those of the run, with collectives and barriers."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist

from trainyard_train.parallelism.fabric import Choice, refused_network

_FOLLOW_SECONDS: Final = 2.0
"""Seconds that ranks wait for rank 0 before they exit."""

_REFUSE_SECONDS: Final = 10.0
"""Seconds that a rank waits for others that may find the same problem."""


@dataclass(frozen=True)
class Mesh:
    """Rank, node and device of this process."""

    rank: int
    world_size: int
    device: torch.device
    node: str
    store: dist.Store
    """Store of small values for all ranks, held by the process at MASTER_ADDR until it exits."""
    choice: Choice | None = None
    """Backend and network of the collectives; None for a single rank."""

    def with_own_connection(self, name: str) -> Mesh:
        """This mesh with another connection to the store, since a wait on one blocks all its users.

        Args:
            name: used once in a process's life. All ranks call it: before 2.8 PyTorch clones no store, and a
                new connection has a part of the store that rank 0 names.
        """
        store = self.store
        if hasattr(store, "clone"):
            return replace(self, store=store.clone())
        while isinstance(store, dist.PrefixStore):
            store = store.underlying_store
        if not isinstance(store, dist.TCPStore):  # others let their users in while one waits
            return self
        part = self.broadcast(f"connection/{name}", secrets.token_hex(8))
        timeout = store.timeout  # type: ignore[attr-defined]
        connection = dist.TCPStore(store.host, store.port, is_master=False, timeout=timeout)
        return replace(self, store=dist.PrefixStore(part, connection))

    @property
    def is_rank0(self) -> bool:
        """Whether this is the rank that writes what one rank writes for all."""
        return self.rank == 0

    @property
    def own_name(self) -> str:
        """This rank and its node, for messages."""
        return f"rank {self.rank} on {self.node}"

    def gather(self, key: str, value: str) -> list[str]:
        """Give every rank the value of each, in order of rank. A key is used once in a process's life.

        Rank 0 brings them together, so N ranks ask the store 2 N + 2 times, and not N² times.
        """
        self.store.set(f"{key}/{self.rank}", value)
        if self.is_rank0:
            found = self.store.multi_get([f"{key}/{rank}" for rank in range(self.world_size)])
            self.store.set(f"{key}/all", json.dumps([text.decode() for text in found]))
        gathered: list[str] = json.loads(self.store.get(f"{key}/all"))
        return gathered

    def broadcast(self, key: str, value: str = "") -> str:
        """Give every rank the value of rank 0. A key is used once in a process's life."""
        if self.is_rank0:
            self.store.set(key, value)
        return str(self.store.get(key), "utf-8")

    def broadcast_bytes(self, owner: int, data: memoryview, size: int) -> memoryview:
        """Give every rank the bytes that one has.

        All must call it, knowing their size.
        """
        everyone = range(self.world_size)
        whole = torch.frombuffer(bytearray(data if owner == self.rank else b"-"), dtype=torch.uint8)
        found = self.share(owner, everyone, whole, size).cpu()
        return data if owner == self.rank else found.numpy().data

    def share(
        self,
        owner: int,
        ranks: Sequence[int],
        data: torch.Tensor,
        size: int,
        room: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Give some ranks the bytes that one of them has, on this rank's device; they alone call it.

        Args:
            owner: who has them.
            ranks: all that take part, the owner among them.
            data: the bytes, at the owner.
            size: their number.
            room: memory to receive them, at least as large, on this rank's device.
        """
        if len(ranks) == 1 or not size:
            return data[:size]
        is_owner = owner == self.rank
        if is_owner:
            sent = data.to(self.device)
        elif room is None:
            sent = torch.empty(size, dtype=torch.uint8, device=self.device)
        else:
            sent = room[:size]
        if len(ranks) == self.world_size:
            dist.broadcast(sent, owner)
        elif is_owner:
            for work in [dist.isend(sent, rank) for rank in ranks if rank != owner]:
                work.wait()  # type: ignore[union-attr]
        else:
            dist.recv(sent, owner)
        return sent

    def follow(self, key: str) -> None:
        """Let rank 0 proceed first; the others wait a little for it, and not if it has failed."""
        if self.is_rank0:
            self.store.set(key, "")
            return
        with suppress(RuntimeError):
            self.store.wait([key], timedelta(seconds=_FOLLOW_SECONDS))

    def refuse(self) -> None:
        """Shutdown barrier where all ranks find the same error, so that each exits with that message.

        A rank that exits looks failed to one that is not connected yet; so does rank 0, which has the store.
        """
        with suppress(RuntimeError):
            self.store.set(f"refused/{self.rank}", "")
            others = [f"refused/{rank}" for rank in range(self.world_size)]
            self.store.wait(others, timedelta(seconds=_REFUSE_SECONDS))

    def shutdown_barrier(self) -> None:
        """Wait at rank 0 for all others: its process may keep the store, which they still read.

        Raises:
            RuntimeError: a rank did not come to its end.
        """
        self.store.set(f"part/{self.rank}", "")
        if self.is_rank0:
            self.store.wait([f"part/{rank}" for rank in range(self.world_size)])

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Sum a tensor over all ranks, in place; returns it."""
        if self.world_size > 1:
            dist.all_reduce(values)
        return values


def is_peer_failure(error: BaseException) -> bool:
    """Whether an error means that another rank has failed, or is unreachable."""
    if refused_network(error):
        return False
    return isinstance(error, dist.DistError) or (isinstance(error, RuntimeError) and "gloo" in str(error))
