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
# Two threads of a rank write, so each field is written alone; aligned, so that no reader sees half a step.
_SAVED_STEP: Final = struct.Struct("q")
_STALLED: Final = struct.Struct("?")
_STALLED_OFFSET: Final = _SAVED_STEP.size
_SLOT_BYTES: Final = 2 * _SAVED_STEP.size


@dataclass(frozen=True)
class RankStatus:
    """Slot of one rank in the shared memory."""

    memory: mmap.mmap
    offset: int = 0
    has_agent: bool = False
    """Whether an agent watches this process; without one, it listens for its peers' heartbeats itself."""

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> RankStatus:
        """Return this process's slot; without an agent, memory that nobody reads."""
        if AGENT not in environment:
            return RankStatus(mmap.mmap(-1, _SLOT_BYTES))
        descriptor, offset = map(int, environment[AGENT].split(":"))
        return RankStatus(mmap.mmap(descriptor, 0), offset, has_agent=True)

    @property
    def saved_step(self) -> int:
        """Step of the newest committed checkpoint that the rank knows of."""
        step: int = _SAVED_STEP.unpack_from(self.memory, self.offset)[0]
        return step

    @property
    def stalled(self) -> bool:
        """Whether work of the rank or of a peer has lasted longer than `timeouts.stall`."""
        stalled: bool = _STALLED.unpack_from(self.memory, self.offset + _STALLED_OFFSET)[0]
        return stalled

    def write(self, *, saved_step: int | None = None, stalled: bool | None = None) -> None:
        """Write the fields that are given."""
        if saved_step is not None:
            _SAVED_STEP.pack_into(self.memory, self.offset, saved_step)
        if stalled is not None:
            _STALLED.pack_into(self.memory, self.offset + _STALLED_OFFSET, stalled)


@dataclass(frozen=True)
class RankStatuses:
    """The agent's view of the shared memory: the slots of all ranks of its node."""

    descriptor: int
    ranks: tuple[RankStatus, ...]

    @staticmethod
    def create(count: int) -> RankStatuses:
        """Create the memory with a slot for each of `count` ranks, which inherit its descriptor."""
        descriptor = os.memfd_create("rank-status")
        os.ftruncate(descriptor, count * _SLOT_BYTES)
        memory = mmap.mmap(descriptor, 0)
        return RankStatuses(
            descriptor, tuple(RankStatus(memory, rank * _SLOT_BYTES) for rank in range(count))
        )

    def environment(self, local_rank: int) -> dict[str, str]:
        """Return the environment variables by which a rank finds its slot."""
        return {AGENT: f"{self.descriptor}:{self.ranks[local_rank].offset}"}

    def clear_stalled(self) -> None:
        """Clear the flags that the ranks of an earlier round have left."""
        for rank in self.ranks:
            rank.write(stalled=False)

    @property
    def saved_step(self) -> int:
        """Step of the newest committed checkpoint that any of the ranks knows of."""
        return max(rank.saved_step for rank in self.ranks)
