"""`trainyard shell`: opens a shell, or runs one program, in the pod of a rank."""

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

from infra.clients.kubernetes import PodConnection
from infra.clients.kubernetes.pods import RESIZE, STDERR, STDIN, STDOUT
from trainyard.jobs.cluster import MemberCluster, key_of
from trainyard.jobs.node_pods import running_pod
from trainyard.stack.remote import CHUNK, Remote
from trainyard.stack.session import Session

SHELL = ("/bin/sh", "-c", "command -v bash > /dev/null && exec bash; exec sh")


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


def _copied(connection: PodConnection) -> int:
    """Copy input to the program and its output to the terminal, until the program ends."""
    source = sys.stdin.fileno()
    listening = [source, connection]
    for is_open in connection.rounds():
        if is_open:
            _send_typed(connection, source, listening)
        for channel, sink in ((STDOUT, sys.stdout), (STDERR, sys.stderr)):
            if written := connection.read(channel):
                sink.buffer.write(written)
                sink.buffer.flush()
    return connection.exit_code()


def _send_typed(connection: PodConnection, source: int, listening: list[Any]) -> None:
    """Wait for input or output; send the input, or its end."""
    ready, _, _ = select.select(listening, (), (), 1.0)
    if source not in ready:
        return
    if typed := os.read(source, CHUNK):
        connection.write(STDIN, typed)
    else:
        listening.remove(source)
        connection.close_channel(STDIN)


@contextmanager
def _raw_terminal(connection: PodConnection) -> Iterator[None]:
    """Pass every key on, Ctrl-C too, and the terminal's size whenever it changes."""

    def resized(*_: object) -> None:
        size = shutil.get_terminal_size()
        connection.write(RESIZE, json.dumps({"Width": size.columns, "Height": size.lines}).encode())

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
