"""A process group backend on CPUs whose collectives hang once a peer has died, as NCCL's do.

It runs gloo's collectives. Gloo raises an error when a connection closes; this backend hides the error, so
the collective never ends. A collective that has not ended within the group's timeout, counted from its
start, aborts the process by SIGABRT, as NCCL's watchdog does.
"""

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from trainyard_train.launchers import process_group
from trainyard_train.parallelism.fabric import Choice

NAME = "blocking"
COLLECTIVES = ("allreduce", "allgather", "barrier", "broadcast", "reduce_scatter", "_allgather_base")


class BlockingGroup(dist.ProcessGroup):
    """Gloo's collectives, which hang where gloo would raise an error."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._gloo._set_default_timeout(timedelta(days=1))
        self._timeout = timeout.total_seconds()
        self._waiters = ThreadPoolExecutor(thread_name_prefix="blocking")

    def getBackendName(self) -> str:  # noqa: N802
        return NAME

    def _begin(self, name: str, *arguments: object) -> dist.Work:
        watchdog = threading.Timer(self._timeout, os.abort)
        watchdog.daemon = True
        watchdog.start()
        future: torch.futures.Future[Any] = torch.futures.Future()
        try:
            work = getattr(self._gloo, name)(*arguments)
        except RuntimeError:
            return _create_work_from_future(future)
        self._waiters.submit(self._end, work, arguments, future, watchdog)
        return _create_work_from_future(future)

    @staticmethod
    def _end(work: dist.Work, arguments: Any, future: Any, watchdog: threading.Timer) -> None:
        try:
            work.wait()
        except RuntimeError:
            return  # the future is never set, so the collective hangs
        watchdog.cancel()
        future.set_result(arguments[0] if len(arguments) > 1 else None)


def _collective(name: str) -> Callable[..., dist.Work]:
    return lambda group, *arguments: group._begin(name, *arguments)


for each in COLLECTIVES:
    setattr(BlockingGroup, each, _collective(each))


def install() -> None:
    """Make this process, and the ranks that it forks, use the backend."""
    dist.Backend.register_backend(NAME, BlockingGroup, devices=["cpu"])
    process_group.choose = lambda *_: Choice(NAME, "as NCCL, without a GPU")  # type: ignore[attr-defined]
