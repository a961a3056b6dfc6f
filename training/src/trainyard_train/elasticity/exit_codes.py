"""Exit codes of ranks and agents, by which their launcher decides whether to restart them."""

from __future__ import annotations

from typing import Final

EXIT_PREEMPTED: Final = 75
"""EX_TEMPFAIL: exited on a preemption notice with a checkpoint committed, or before the first step. Run it
again."""
EXIT_PEER_FAILED: Final = 76
"""Another rank failed, and this one did not: all may restart at once."""
EXIT_ABSENT_RANK: Final = 77
"""Not all ranks joined in time."""
EXIT_FAILED: Final = 1
EXIT_WRONG_CONFIG: Final = 2
