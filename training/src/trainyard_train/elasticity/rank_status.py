"""Shared memory in which each rank publishes its status to the agent of its node.

The agent must know the status of ranks that hang or have died, so a pipe or the store would not do.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

AGENT: Final = "TRAINYARD_AGENT"
"""Variable that an agent sets: the descriptor of the shared memory, and this rank's slot in it."""
_FIELDS: Final = struct.Struct("=q?")


@dataclass(frozen=True)
class RankStatus:
    """Slot of one rank in the shared memory."""

    memory: mmap.mmap
    offset: int = 0
    has_agent: bool = False
    """Whether an agent watches this process, so that the process need not listen for others' heartbeats."""

    @staticmethod
    def of(environment: Mapping[str, str] = os.environ) -> RankStatus:
        """This process's; without an agent, memory that is not read."""
        if AGENT not in environment:
            return RankStatus(mmap.mmap(-1, _FIELDS.size))
        descriptor, offset = map(int, environment[AGENT].split(":"))
        return RankStatus(mmap.mmap(descriptor, 0), offset, has_agent=True)

    @property
    def saved_step(self) -> int:
        """The newest committed checkpoint's step that the rank knows of."""
        return self._read()[0]

    @property
    def stalled(self) -> bool:
        """Whether the rank's work has lasted longer than `timeouts.stall`, or that of a peer has."""
        return self._read()[1]

    def write(self, *, saved_step: int | None = None, stalled: bool | None = None) -> None:
        """Change what is given."""
        before = self._read()
        _FIELDS.pack_into(
            self.memory,
            self.offset,
            before[0] if saved_step is None else saved_step,
            before[1] if stalled is None else stalled,
        )

    def _read(self) -> tuple[int, bool]:
        step, stalled = _FIELDS.unpack_from(self.memory, self.offset)
        return step, stalled


@dataclass(frozen=True)
class RankStatuses:
    """The memory, as the agent has it."""

    descriptor: int
    ranks: tuple[RankStatus, ...]

    @staticmethod
    def create(count: int) -> RankStatuses:
        """Create the memory for so many ranks, which inherit it."""
        descriptor = os.memfd_create("rank-status")
        os.ftruncate(descriptor, count * _FIELDS.size)
        memory = mmap.mmap(descriptor, 0)
        return RankStatuses(
            descriptor, tuple(RankStatus(memory, rank * _FIELDS.size) for rank in range(count))
        )

    def environment(self, local_rank: int) -> dict[str, str]:
        """Variables by which a rank finds its slot."""
        return {AGENT: f"{self.descriptor}:{self.ranks[local_rank].offset}"}

    def clear_stalled(self) -> None:
        """Forget what ranks of an earlier round were busy with."""
        for rank in self.ranks:
            rank.write(stalled=False)

    @property
    def saved_step(self) -> int:
        """The newest committed checkpoint's step that any of the ranks knows of."""
        return max(rank.saved_step for rank in self.ranks)
