"""`Packing`: lists and packs a folder in a process beside the command, which meanwhile reads its options,
imports the Kubernetes client and asks the cluster. A thread would slow both down, since one of them at a time
runs Python.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from engine.paths import REPOSITORY, START
from infra.errors import TrainyardError
from trainyard.source.files import Listing, list_files
from trainyard.source.pack import Pack, pack

_ARCHIVE = "archive"


@dataclass(frozen=True)
class Code:
    """A packed folder of code."""

    listing: Listing
    pack: Pack
    seconds: float
    """Time to pack the files, after they were listed."""


class Packing:
    """A process that packs a folder. As a context it ends the process, and deletes the archive."""

    def __init__(self, folder: Path) -> None:
        """Start the process. It packs the folder before the job is known: most list no more files."""
        self._output = tempfile.TemporaryDirectory(prefix="trainyard-")
        # -P: the user's folder may have modules with names of ours. Ctrl-C does not reach a new session.
        start = str(REPOSITORY / START)
        command = [sys.executable, "-P", start, __name__, str(folder), self._output.name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._output.cleanup()

    def stop(self) -> None:
        """End the process, if it runs: a job that does not take the folder may be followed for hours."""
        with self._process:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)  # git's processes too

    def include(self, listed: Sequence[str]) -> None:
        """Say which patterns of untracked files the pack has, as `code` needs to know."""
        stdin = self._process.stdin
        assert stdin
        with suppress(BrokenPipeError), stdin:  # the process has failed: `code` says so
            pickle.dump(tuple(listed), stdin)

    def code(self) -> Code:
        """Wait for the pack; it can be asked for once, after `include`.

        Raises:
            InputError: files that cannot be sent, or git cannot read the folder.
            HostError: there is no git.
            OSError: a file cannot be read, or the archive not written.
        """
        stdout = self._process.stdout
        assert stdout
        output = stdout.read()
        if self._process.wait():
            raise RuntimeError(f"{__name__} ended with {self._process.returncode}")
        found = pickle.loads(output)  # noqa: S301 -- from our own process
        if isinstance(found, Exception):
            raise found
        listing, seconds, digest, num_files, num_bytes = found
        archive = Path(self._output.name, _ARCHIVE).open("rb")  # noqa: SIM115 -- it is returned
        return Code(listing, Pack(digest, num_files, num_bytes, archive), seconds)


def _packed(folder: Path, output: Path, listed: Sequence[str]) -> tuple[Any, ...] | Exception:
    """Return the parts of a `Code`, or the error."""
    try:
        listing = list_files(folder, listed)
        started = time.monotonic()
        with (output / _ARCHIVE).open("w+b") as archive:
            made = pack(folder, listing.names, listed, archive)
    except (TrainyardError, OSError) as error:
        return error
    return listing, time.monotonic() - started, made.digest, made.num_files, made.num_bytes


def main() -> None:
    """Pack FOLDER into OUTPUT, and write the result, or the error, for `Packing`."""
    folder, output = map(Path, sys.argv[1:])
    result = _packed(folder, output, ())
    if not (asked := sys.stdin.buffer.read()):
        return  # the command ended first
    if listed := pickle.loads(asked):  # noqa: S301 -- from our own process
        result = _packed(folder, output, listed)
    pickle.dump(result, sys.stdout.buffer)


if __name__ == "__main__":
    main()
