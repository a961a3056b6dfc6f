"""`trainyard shell`: opens a shell, or runs one program, in the pod of a rank."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.ranks import running_pod
from trainyard.jobs.remote import Remote, exit_code, rounds
from trainyard.jobs.submit import key_of
from trainyard.stack.session import Session

SHELL = ("/bin/sh", "-c", "command -v bash > /dev/null && exec bash; exec sh")
STDIN, STDOUT, STDERR, RESIZE = 0, 1, 2, 4
"""Channels of the connection."""
CHUNK = 1 << 16


def open_shell(session: Session, name: str, rank: int, command: Sequence[str]) -> int:
    """Run a shell, or the program that is given, in the pod of a rank; return its exit code.

    Raises:
        InputError: there is no such job, or the rank does not run.
        TrainyardError: the pod cannot be entered.
    """
    key = key_of(session, name)
    pod = running_pod(MemberCluster(session), key, rank)
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    words = list(command) or list(SHELL)
    connection = Remote(session.api).start(pod, words, stdin=True, tty=is_terminal)
    if not is_terminal:
        return _copied(connection)
    with _raw_terminal(connection):
        return _copied(connection)


def _copied(connection: Any) -> int:  # noqa: ANN401 -- the client's own
    """Copy input to the program and its output to the terminal, until the program ends."""
    source = sys.stdin.fileno()
    listening = [source, connection.sock.sock]
    for is_open in rounds(connection):
        if is_open:
            _send_typed(connection, source, listening)
        for channel, sink in ((STDOUT, sys.stdout), (STDERR, sys.stderr)):
            if written := connection.read_channel(channel):
                sink.buffer.write(written)
                sink.buffer.flush()
    return exit_code(connection)


def _send_typed(connection: Any, source: int, listening: list[Any]) -> None:  # noqa: ANN401
    """Wait for input or output; send the input, or its end."""
    ready, _, _ = select.select(listening, (), (), 1.0)
    if source not in ready:
        return
    if typed := os.read(source, CHUNK):
        connection.write_channel(STDIN, typed)
    else:
        listening.remove(source)
        connection.close_channel(STDIN)


@contextmanager
def _raw_terminal(connection: Any) -> Iterator[None]:  # noqa: ANN401 -- the client's own
    """Pass every key on, Ctrl-C too, and the terminal's size whenever it changes."""

    def resized(*_: object) -> None:
        size = shutil.get_terminal_size()
        connection.write_channel(RESIZE, json.dumps({"Width": size.columns, "Height": size.lines}))

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    handler = signal.signal(signal.SIGWINCH, resized)
    try:
        tty.setraw(descriptor)
        resized()
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
