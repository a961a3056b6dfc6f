"""Shared memory in which each rank publishes its status to the agent of its node.

The agent must know the status of ranks that hang or have died, so a pipe or the store would not do.
"""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Mapping
from ctypes import Structure, c_bool, c_int64, sizeof
from dataclasses import dataclass
from typing import Final

AGENT: Final = "TRAINYARD_AGENT"
"""Variable that an agent sets: the descriptor of the shared memory, and this rank's slot in it."""


class RankStatus(Structure):
    """Slot of one rank in the shared memory.

    Two threads of a rank write, each field by itself; fields are aligned, so that no reader sees half a step.
    """

    saved_step: int
    """Step of the newest committed checkpoint that the rank knows of."""
    stalled: bool
    """Whether work of the rank or of a peer has lasted longer than `timeouts.stall`."""
    step: int
    raised: int
    """Digest of the exception that ended the rank, with its message and step; 0 without one."""
    has_agent: bool = False
    """Whether an agent watches this process; without one, it listens for its peers' heartbeats itself."""
    _fields_ = (("saved_step", c_int64), ("stalled", c_bool), ("step", c_int64), ("raised", c_int64))

    @staticmethod
    def from_environment(environment: Mapping[str, str] = os.environ) -> RankStatus:
        """Return this process's slot; without an agent, memory that nobody reads."""
        if AGENT not in environment:
            return RankStatus()
        descriptor, offset = map(int, environment[AGENT].split(":"))
        status = RankStatus.from_buffer(mmap.mmap(descriptor, 0), offset)
        status.has_agent = True
        return status

    def note_exception(self, error: BaseException) -> None:
        """Tell the agent of the exception that ends this rank, unless it is an exit or Ctrl-C."""
        if isinstance(error, Exception):
            text = f"{type(error).__qualname__}: {error} after step {self.step}"
            self.raised = zlib.crc32(text.encode()) or 1


@dataclass(frozen=True)
class RankStatuses:
    """The agent's view of the shared memory: the slots of all ranks of its node."""

    descriptor: int
    ranks: tuple[RankStatus, ...]

    @staticmethod
    def create(count: int) -> RankStatuses:
        """Create the memory with a slot for each of `count` ranks, which inherit its descriptor."""
        assert hasattr(os, "memfd_create")  # as on Linux, where agents are
        descriptor = os.memfd_create("rank-status")
        os.ftruncate(descriptor, count * sizeof(RankStatus))
        return RankStatuses(descriptor, tuple((RankStatus * count).from_buffer(mmap.mmap(descriptor, 0))))

    def environment(self, local_rank: int) -> dict[str, str]:
        """Return the environment variables by which a rank finds its slot."""
        return {AGENT: f"{self.descriptor}:{local_rank * sizeof(RankStatus)}"}

    def clear(self) -> None:
        """Clear what the ranks of an earlier round have left, except for the saved step."""
        for rank in self.ranks:
            rank.stalled, rank.step, rank.raised = False, 0, 0

    @property
    def saved_step(self) -> int:
        """Step of the newest committed checkpoint that any of the ranks knows of."""
        return max(rank.saved_step for rank in self.ranks)
