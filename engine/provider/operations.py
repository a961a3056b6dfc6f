"""Runs each provider operation in an interruptible thread, and reports its progress to the engine."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from typing import TypeVar

import grpc

from engine.progress import Task
from engine.provider.resource import Cancelled, HandlerProgress
from engine.stubs import CHANNEL_OPTIONS, engine_pb2, engine_pb2_grpc

T = TypeVar("T")
INTERRUPTED = "interrupted; run again to resume"
POLL_SECONDS = 0.1
CANCEL_GRACE_SECONDS = 2.0
"""Seconds for an interrupted operation to reach a point from which it can resume."""


class EngineLog:
    """The engine's log service; a lost line is no failure."""

    def __init__(self, address: str) -> None:
        self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address, options=CHANNEL_OPTIONS))

    def status(self, urn: str, text: str) -> None:
        """Show a line in the row of a resource; it is transient."""
        request = engine_pb2.LogRequest(
            severity=engine_pb2.INFO, message=text, urn=urn, ephemeral=True, streamId=0
        )
        with suppress(grpc.RpcError):
            self._stub.Log(request)


class OperationThreads:
    """Runs operations in threads that are left behind when the user interrupts."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()
        self._executor = ThreadPoolExecutor(thread_name_prefix="operation")

    def cancel(self) -> None:
        """Ask every operation to stop at its next report."""
        self._cancelled.set()

    def run(self, operation: Callable[[HandlerProgress], T], log: EngineLog | None, urn: str) -> T:
        """Run to the end. Raises Cancelled at most `CANCEL_GRACE_SECONDS` after an interrupt."""
        future: Future[T] = self._executor.submit(operation, LoggedProgress(log, urn, self._cancelled))
        while not wait([future], POLL_SECONDS).done:
            if self._cancelled.is_set():
                wait([future], CANCEL_GRACE_SECONDS)
                break
        if not future.done():
            raise Cancelled(INTERRUPTED)
        return future.result()


class LoggedProgress:
    """Reports one operation to the engine; safe to call from several threads."""

    def __init__(self, log: EngineLog | None, urn: str, cancelled: threading.Event) -> None:
        self._log = log
        self._urn = urn
        self._cancelled = cancelled

    def check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled(INTERRUPTED)

    def log(self, text: str) -> None:
        self.check()
        if self._log is not None:
            self._log.status(self._urn, text)

    @contextmanager
    def task(self, name: str) -> Iterator[Task]:
        started = time.monotonic()
        self.log(f"{name} …")
        yield _OperationTask(self, name)
        self.log(f"{name}: {time.monotonic() - started:.1f} s")


class _OperationTask:
    def __init__(self, progress: LoggedProgress, name: str) -> None:
        self._progress = progress
        self._name = name

    def advanced(self, done: int, total: int | None = None, text: str = "") -> None:
        share = f"{done} of {total}" if total else str(done)
        self._progress.log(f"{self._name}: {share} {text}".rstrip())
