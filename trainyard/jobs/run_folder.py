"""Reads and replaces files in a run's folder on this host, and follows no link that a job has put there.

The team's jobs write there, and on the embedded cluster the commands that read it run as root. Links are
followed only down to the team's folder, which no pod can replace.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from infra.errors import Problem, TrainyardError

_NO_FILE_OR_FOLDER = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.EINVAL})
"""Error codes for a link, a parent that is not a folder, a folder, a socket, and another special file."""


def read_from(run_dir: Path, name: str, offset: int) -> bytes:
    """Return a file's content from an offset on; empty if the file does not exist.

    Raises:
        TrainyardError: a link, a folder or a special file is in its place, or it cannot be read.
    """
    try:
        with _opened(run_dir) as folder, _regular_file(name, folder) as file:
            file.seek(offset)
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise TrainyardError([_problem(run_dir, name, error)]) from error


def replace(run_dir: Path, name: str, content: bytes) -> None:
    """Write a file of the run's folder atomically.

    Raises:
        TrainyardError: a link is in the place of a folder, or the file cannot be written.
    """
    try:
        with _opened(run_dir) as folder:
            staged = f".{name}.{secrets.token_hex(8)}"
            made = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
            try:
                with os.fdopen(made, "wb") as file:
                    file.write(content)
                os.rename(staged, name, src_dir_fd=folder, dst_dir_fd=folder)
            finally:
                with suppress(FileNotFoundError):  # it was renamed
                    os.unlink(staged, dir_fd=folder)
    except OSError as error:
        raise TrainyardError([_problem(run_dir, name, error)]) from error


@contextmanager
def _opened(run_dir: Path) -> Iterator[int]:
    """Yield the descriptor of the run's folder, `TEAM/JOB/RUN`."""
    folder = os.open(run_dir.parent.parent, os.O_DIRECTORY)
    try:
        for part in (run_dir.parent.name, run_dir.name):
            outer, folder = folder, os.open(part, os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
            os.close(outer)
        yield folder
    finally:
        os.close(folder)


def _regular_file(name: str, folder: int) -> BinaryIO:
    # O_NONBLOCK: opening a FIFO would wait for a writer.
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file")
    return os.fdopen(descriptor, "rb")


def _problem(run_dir: Path, name: str, error: OSError) -> Problem:
    if error.errno in _NO_FILE_OR_FOLDER:
        allowed = "folders and files that the job created, without links"
        fix = f"delete what a job of team {run_dir.parent.parent.name} created instead"
    else:
        allowed = "a folder that you may read and write, on a filesystem with free space"
        fix = "get the permissions, or free space, and run the command again"
    return Problem(str(run_dir / name), str(error.strerror), allowed, fix)
