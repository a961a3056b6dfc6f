"""Dumps the stacks of this process's threads into a memory file at SIGUSR2.

Python's own handler in C writes them, so a process answers even while it waits in a library, for example for
another rank. The file is found by its name in `/proc`, and ends with the process, however that ends.
"""

from __future__ import annotations

import faulthandler
import os
import signal
from typing import Final

STACKS_SIGNAL: Final = signal.SIGUSR2
PREFIX: Final = "trainyard-stacks-"
_answering: set[int] = set()
"""This process, and those it was forked from, if they answer; a fork makes a file of its own."""


def answer_with_stacks() -> None:
    """Write the stacks of all threads into a memory file of this process at each SIGUSR2.

    A program that handles the signal keeps its handler. Outside of Linux there is no such file: only
    `trainyard` reads it, from a pod.
    """
    process = os.getpid()
    is_handled = signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL
    if not hasattr(os, "memfd_create") or process in _answering or is_handled:
        return
    file = os.memfd_create(f"{PREFIX}{process}")  # open until the process ends
    os.write(file, f"rank {os.environ.get('RANK', '0')}\n".encode())
    faulthandler.register(STACKS_SIGNAL, file, all_threads=True)
    _answering.add(process)
