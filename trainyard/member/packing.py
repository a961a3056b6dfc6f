"""`Packing`: lists and packs a folder in a process beside the command, which meanwhile imports the Kubernetes
client and asks the cluster. A thread would slow both down, since one of them at a time runs Python.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from infra.errors import TrainyardError
from trainyard.member.folder import Listing, list_files
from trainyard.member.pack import Pack, pack

_ARCHIVE = "archive"


@dataclass(frozen=True)
class Code:
    """A packed folder of code."""

    listing: Listing
    pack: Pack
    seconds: float
    """Time to pack the files, after they were listed."""


class Packing:
    """A process that packs one folder. As a context it ends the process, and deletes the archive."""

    def __init__(self) -> None:
        """Start the process, which imports what it needs, and waits for `begin`."""
        self._output = tempfile.TemporaryDirectory(prefix="trainyard-")
        # -P: the user's folder may have modules with names of ours. Ctrl-C does not reach a new session.
        command = [sys.executable, "-P", "-m", __name__, self._output.name]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()
        self._output.cleanup()

    def begin(self, folder: Path, listed: Sequence[str]) -> None:
        """Let it pack a folder; `listed` are patterns of untracked files to include."""
        stdin = self._process.stdin
        assert stdin
        with suppress(BrokenPipeError), stdin:  # the process has failed: `code` says so
            pickle.dump((folder, tuple(listed)), stdin)

    def code(self) -> Code:
        """Wait for the pack that was begun; it can be asked for once.

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


def _packed(folder: Path, output: Path, listed: Sequence[str]) -> tuple[Any, ...]:
    listing = list_files(folder, listed)
    started = time.monotonic()
    with (output / _ARCHIVE).open("w+b") as archive:
        made = pack(folder, listing.names, listed, archive)
    return listing, time.monotonic() - started, made.digest, made.num_files, made.num_bytes


def main() -> None:
    """Pack the folder that the standard input names, and write the result, or the error, for `Packing`."""
    if not (asked := sys.stdin.buffer.read()):
        return  # the command ended first
    folder, listed = pickle.loads(asked)  # noqa: S301 -- from our own process
    result: object
    try:
        result = _packed(folder, Path(sys.argv[1]), listed)
    except (TrainyardError, OSError) as error:
        result = error
    pickle.dump(result, sys.stdout.buffer)


if __name__ == "__main__":
    main()
