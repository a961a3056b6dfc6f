"""gRPC server that all our engine plugins use: prints its loopback port, and ends with the engine."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import FrameType

import grpc

from engine.stubs import CHANNEL_OPTIONS

WORKERS = 64
"""Number of threads. A policy pack and a program each occupy one thread while they run; the rest serve
resources."""

GRACE_SECONDS = 2.0
"""Seconds to stop after an interrupt; the engine kills a plugin after 5 s."""

PARENT_SECONDS = 1.0
"""Seconds between two looks whether the engine still runs. Not every system tells of its end."""


class PluginServer:
    """One gRPC server; `run` never returns: the process ends with the engine, or at SIGINT or SIGTERM."""

    def __init__(self, on_stop: Callable[[], None]) -> None:
        self._on_stop = on_stop
        # Not an Event: its lock is not reentrant, so a handler that interrupts `wait` of its thread hangs.
        self._stop: SimpleQueue[None] = SimpleQueue()
        self.server = grpc.server(ThreadPoolExecutor(WORKERS), options=CHANNEL_OPTIONS)

    def run(self) -> None:
        """Serve until asked to stop; the first line on stdout is the port."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)
        threading.Thread(target=self._stop_with_parent, args=(os.getppid(),), daemon=True).start()
        port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
        self._stop.get()
        self._on_stop()
        self.server.stop(GRACE_SECONDS).wait(GRACE_SECONDS)
        # A worker may be in a long operation; joining it would exceed the engine's timeout.
        os._exit(0)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self._stop.put(None)

    def _stop_with_parent(self, parent: int) -> None:
        """Stop when the engine ends: a killed one sends no signal, but its children get another parent."""
        while os.getppid() == parent:
            time.sleep(PARENT_SECONDS)
        self._stop.put(None)
