"""Counts the bytes that a process reads while it loads a checkpoint (`rchar` of `/proc/self/io`), and writes
them to a file.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

FILE = "reads-{rank}.jsonl"
T = TypeVar("T")


def counted(load: Callable[[], T], run_dir: Path, rank: int) -> T:
    """Do what loads a checkpoint, and append what it read to `reads-RANK.jsonl`.

    The kernel counts what read calls returned, whether it came from a disk or from memory: ranks on nodes of
    their own would have it all from the store.
    """
    before = _bytes_read()
    loaded = load()
    read = _bytes_read() - before
    run_dir.mkdir(parents=True, exist_ok=True)
    with (run_dir / FILE.format(rank=rank)).open("a") as log:
        log.write(json.dumps({"bytes": read}) + "\n")
    return loaded


def _bytes_read() -> int:
    text = Path("/proc/self/io").read_text()
    return int(text.splitlines()[0].removeprefix("rchar:"))
