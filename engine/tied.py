"""Starts processes that end with this one, however this one ends, and ends processes.

On Linux the kernel signals them (`setpriv`). Where there is no such call, a small process beside each waits
for the end of a pipe whose other end this process holds. That promise is weaker: it does not hold where the
small process itself was killed.
"""

import os
import shutil
import signal
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from typing import Any


def start_tied(
    command: Sequence[str],
    number: signal.Signals,
    **options: Any,  # noqa: ANN401 -- those of Popen
) -> subprocess.Popen[Any]:
    """Start a process that gets the signal once this one ends, or on Linux the thread that called this."""
    if shutil.which("setpriv"):
        kernel = ["setpriv", "--pdeathsig", number.name.removeprefix("SIG"), "--"]
        return subprocess.Popen([*kernel, *command], **options)
    ours, theirs = os.pipe()
    watched = [sys.executable, "-IS", __file__, str(ours), str(int(number))]
    process = subprocess.Popen([*watched, *command], pass_fds=[ours], **options)
    os.close(ours)
    weakref.finalize(process, os.close, theirs)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it if it does not obey within a second."""
    with suppress(ProcessLookupError):
        process.terminate()
        try:
            process.wait(1.0)
        except subprocess.TimeoutExpired:
            process.kill()


def _become(pipe: int, number: int, command: list[str]) -> None:
    """Become the command, whose process the caller knows, with a child that watches the pipe."""
    watched = os.getpid()
    if os.fork():
        os.close(pipe)
        os.execvp(command[0], command)  # noqa: S606
    for standard in range(3):  # whose readers wait for the command's end
        os.close(standard)
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    os.read(pipe, 1)
    if os.getppid() == watched:
        os.kill(watched, number)


if __name__ == "__main__":
    _become(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
