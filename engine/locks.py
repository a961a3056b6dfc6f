"""File locks of the processes of this host: each names its holder, and ends with it, by SIGKILL too."""

import fcntl
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path


class LockHeldError(Exception):
    """Another process holds the lock; the text has its process id, its command and since when."""


@contextmanager
def hold(file: Path) -> Iterator[None]:
    """Hold the lock within a `with` block. Raises LockHeldError.

    The file remains, since a lock on a deleted file excludes nobody. Child processes do not inherit the lock.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockHeldError(file.read_text() or "another process") from None
        os.ftruncate(descriptor, 0)
        os.write(descriptor, _holder().encode())
        yield
    finally:
        os.close(descriptor)


def is_held(file: Path) -> bool:
    """Whether a living process holds the lock; False where there is no such file."""
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _holder() -> str:
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    since = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return f"process {os.getpid()} since {since}: {command}"
