"""Follows a submitted job until it ends: prints the queue's decisions and the live pod logs of its nodes (at
most 16, and failed ones).
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Lock, Thread, current_thread

from infra.clients.kubernetes import ApiError
from infra.clients.kubernetes.api import whole_lines
from infra.errors import Problem, TrainyardError
from trainyard.jobs.follow import changes
from trainyard.jobs.key import JobKey
from trainyard.jobs.node_pods import NodePod
from trainyard.jobs.state import Jobs, JobState

POLL_SECONDS = 2.0
"""Polling interval: a job runs for hours, and its API server has other work."""
NUM_FOLLOWED = 16
"""Maximum number of nodes whose logs are followed: each takes a connection."""
LAST_LINES = 20
"""Number of last lines that are shown of another node that failed."""
SILENCE_SECONDS = 5.0
"""Maximum seconds of silence after a job's end until a new connection reads its last lines."""
LAST_LINES_SECONDS = 120.0
"""Maximum seconds after a job's end to read its last lines."""


READ_ONLY = "The code's folder is read-only: let the program write to the one that TRAINYARD_RUN_DIR names"
_REFUSED_WRITE = re.compile(
    rb"\[Errno (13|30)\] [\w -]+: '(?!/(?!mnt/job/code))|inline_container.*(Permission denied|Read-only file)"
)
"""Errors of Python for a relative path or a path in the code's folder, and those of `torch.save`."""


class LogPosition:
    """Position in a pod's log: the lines that were printed, as far as a new connection sends them again.

    The API server omits lines of earlier whole seconds. Lines may have the same time, and the times of the
    two output streams may alternate, so the lines of the last two seconds are counted by their times.
    """

    def __init__(self, printed: dict[bytes, Counter[bytes]] | None = None) -> None:
        self._printed = printed or {}

    @property
    def since(self) -> str:
        """The time that a new connection names; empty before the first line."""
        return next(iter(self._printed[min(self._printed)])).decode() if self._printed else ""

    def copy(self) -> LogPosition:
        return LogPosition({second: Counter(times) for second, times in self._printed.items()})

    def add(self, moment: bytes) -> None:
        """Count a line that was printed."""
        self._printed.setdefault(_second(moment), Counter())[moment] += 1
        if len(self._printed) > 2:
            del self._printed[min(self._printed)]

    def new_lines(self, chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield time and text of each line of a new connection that was not printed before."""
        printed = self.copy()._printed
        for line in whole_lines(chunks):
            moment, _, text = line.partition(b" ")
            times = printed.get(_second(moment), Counter())
            if times[moment]:
                times[moment] -= 1
            else:
                yield moment, text


def _second(moment: bytes) -> bytes:
    return moment[: len("2026-01-01T00:00:00")]


@dataclass
class _PodLog:
    """A pod's log that is being copied, and its progress."""

    pod: NodePod
    position: LogPosition = field(default_factory=LogPosition)
    is_whole: bool = False
    thread: Thread | None = None

    def needs_copying(self) -> bool:
        """Whether no connection copies the log, and more lines may come."""
        stopped = self.thread is None or not self.thread.is_alive()
        return stopped and (not self.is_whole or self.pod.phase == "Running")


class NodeLogs:
    """Copies the output of a job's nodes to the standard output, each line once, across reconnections."""

    def __init__(self, jobs: Jobs, key: JobKey, num_nodes: int) -> None:
        self._jobs, self._key, self._num_nodes = jobs, key, num_nodes
        self._logs: dict[str, _PodLog] = {}
        """Logs that are copied, by the pod's name."""
        self._lock = Lock()
        self._heard = time.monotonic()
        self._unwritable: OSError | None = None
        """The error by which the standard output refused a line."""
        self.wrote_to_code = False
        """Whether a program has failed to write into its read-only working folder."""

    @property
    def left_out(self) -> str:
        """Message about the nodes that are not followed; empty if all are."""
        if self._num_nodes <= NUM_FOLLOWED:
            return ""
        rest = f"all: trainyard logs -f {self._key.name}"
        return f"nodes 0 to {NUM_FOLLOWED - 1} of {self._num_nodes} are shown, and others that fail; {rest}"

    def check_output(self) -> None:
        """Raise TrainyardError if the standard output takes no more lines."""
        if (error := self._unwritable) is not None:
            # Python must not try to write the buffered lines again when the process ends.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            fix = f"{self._key.name} continues; follow it again: trainyard logs -f {self._key.name}"
            got = str(error.strerror)
            raise TrainyardError([Problem("standard output", got, "a file or program that takes lines", fix)])

    def look(self) -> bool:
        """Follow the pods that have started; return whether some of them replace others."""
        started = [pod for pod in self._jobs.node_pods(self._key) if pod.phase not in {"", "Pending"}]
        followed = {log.pod.number for log in self._logs.values()}
        again = False
        for pod in started:
            if pod.name not in self._logs and not self._is_shown(pod):
                continue
            again |= pod.name not in self._logs and pod.number in followed
            log = self._logs.setdefault(pod.name, _PodLog(pod))
            log.pod = pod
            if log.needs_copying():
                log.is_whole = False  # before the thread begins, or `finish` might not wait for it
                log.thread = Thread(target=self._copy, args=(log,), daemon=True)
                log.thread.start()
        return again

    def finish(self) -> bool:
        """Copy the last lines of an ended job's nodes; return whether the logs of ended pods are complete."""
        deadline = time.monotonic() + LAST_LINES_SECONDS
        self._heard, is_renewed = time.monotonic(), False
        while self._unwritable is None and not all(log.is_whole for log in self._logs.values()):
            if time.monotonic() > deadline or (is_renewed and self._is_silent()):
                return all(log.is_whole or log.pod.phase == "Running" for log in self._logs.values())
            if self._is_silent():
                self._renew()
                is_renewed = True
            time.sleep(0.1)
            try:
                self.look()
            except (ApiError, OSError):
                self._heard = time.monotonic()
        return True

    def _is_silent(self) -> bool:
        return time.monotonic() > self._heard + SILENCE_SECONDS

    def _renew(self) -> None:
        """Have new connections copy the rest of the logs: the present ones may be cut."""
        with self._lock:
            self._heard = time.monotonic()
            for log in self._logs.values():
                log.thread = None

    def _is_shown(self, pod: NodePod) -> bool:
        return pod.number < NUM_FOLLOWED or pod.phase == "Failed"

    def _copy(self, log: _PodLog) -> None:
        with self._lock:
            position = log.position.copy()
        since = position.since
        tail = None if since or log.pod.number < NUM_FOLLOWED else LAST_LINES
        is_whole = False
        try:
            for moment, text in position.new_lines(self._jobs.log_stream(log.pod, since=since, tail=tail)):
                if not self._write(log, moment, text):
                    return
            is_whole = True
        except ApiError as error:
            is_whole = error.status == HTTPStatus.NOT_FOUND
        except OSError:
            return
        finally:
            with self._lock:
                log.is_whole |= is_whole and log.thread is current_thread()

    def _write(self, log: _PodLog, moment: bytes, text: bytes) -> bool:
        """Write a line, unless another thread copies the log by now."""
        with self._lock:
            if log.thread is not current_thread():
                return False
            self._heard = time.monotonic()
            self.wrote_to_code |= _REFUSED_WRITE.search(text) is not None
            try:
                write_line(text, log.pod.number if self._num_nodes > 1 else None)
                sys.stdout.flush()
            except OSError as error:  # a full disk, or a reader that ended: no other connection helps
                self._unwritable = error
                raise
            log.position.add(moment)
            return True


def follow_logs(jobs: Jobs, key: JobKey, shown: NodeLogs, log: Callable[[str], object]) -> JobState:
    """Show the queue's decisions and the output of the job's nodes, until the job ends.

    Args:
        jobs: jobs of the cluster.
        key: the job's.
        shown: logs of the job's nodes.
        log: takes a line about the job itself.

    Raises:
        TrainyardError: the standard output takes no more lines; the job continues.
    """
    state, waiting, advised = JobState("queued"), "", False
    if shown.left_out:
        log(f"  {shown.left_out}")
    while True:
        before, state = state, jobs.state(key)
        for text in changes(before, state):
            log(f"  queue  {text}")
        if state.phase == "queued" and state.reason != waiting:
            waiting = state.reason
            log(f"  queue  {waiting}")
        if state.phase in {"admitted", "running"} or state.ended:
            with suppress(ApiError, OSError):  # a broken connection: the next poll retries
                if shown.look():
                    log("  queue  its pods were started again")
        is_complete = not state.ended or shown.finish()
        shown.check_output()
        if not is_complete:
            log(f"  its last lines may be missing; all lines: trainyard logs {key.name}")
        if shown.wrote_to_code and not advised:
            advised = True
            log(f"  {READ_ONLY}")
        if state.ended:
            return state
        time.sleep(POLL_SECONDS)


def write_line(text: bytes, node: int | None = None) -> None:
    """Write a line of a job to the standard output, after the node's number if one is given."""
    mark = b"" if node is None else f"node {node} | ".encode()
    sys.stdout.buffer.write(mark + text + b"\n")
