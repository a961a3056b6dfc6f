"""Dumps the stacks of this process's threads into a file at SIGUSR2.

Python's own handler in C writes them, so a process answers even while it waits in a library, for example for
another rank.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import tempfile
from pathlib import Path
from typing import Final, TextIO

STACKS_SIGNAL: Final = signal.SIGUSR2
PREFIX: Final = "trainyard-stacks-"
_open: dict[int, TextIO] = {}
"""Process → the file that its handler writes to, open until the process exits; a fork opens another."""


def answer_with_stacks(folder: Path | None = None) -> None:
    """Write the stacks of all threads into a file of this process, in `folder`, at each SIGUSR2.

    A program that handles the signal keeps its handler.
    """
    if _open.get(os.getpid()) or signal.getsignal(STACKS_SIGNAL) is not signal.SIG_DFL:
        return
    path = (folder or Path(tempfile.gettempdir())) / f"{PREFIX}{os.getpid()}"
    file = path.open("w")
    file.write(f"rank {os.environ.get('RANK', '0')}\n")
    file.flush()
    faulthandler.register(STACKS_SIGNAL, file, all_threads=True)
    _open[os.getpid()] = file
