"""The lines of a job. `NodeLogs` copies those of its pods while they run. `trainyard logs` prints those of
all nodes and attempts, from stored logs or else from running pods.

The lines are stored on the cluster's shared filesystem. The command reads them by a program in a pod of the
platform, where members of the team may execute one (`infra/platform/storage/logs.py`). Without that pod, or
before lines of the job are stored, the kubelets' logs of the existing pods are printed.
"""

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from threading import Lock, Thread, current_thread

from infra.clients.kubernetes import ApiError, NoAnswer, Object, PodConnection
from infra.clients.kubernetes.api import whole_lines
from infra.clients.kubernetes.pods import STDERR, STDOUT, PodContainer
from infra.common import names
from infra.errors import InputError, Problem, TrainyardError
from trainyard.jobs import retrying_jobs
from trainyard.jobs.cluster import MemberCluster, key_of
from trainyard.jobs.key import JobKey
from trainyard.jobs.node_pods import NodePod, num_ranks, pods_of
from trainyard.jobs.retrying_jobs import RetryingJobs, states
from trainyard.jobs.state import Jobs, JobState, NoSuchJobError
from trainyard.stack.remote import Remote
from trainyard.stack.session import Session

ALL = -1
CLOCKS_SECONDS = 5.0
"""Maximum difference between the clocks of a node and of the API server."""
LAST_LINES_SECONDS = 3.0
"""Maximum delay from a pod's output to its stored line; after a job's end, as much silence ends its log."""
LOOK_SECONDS = 3.0
"""Seconds between two checks whether a followed job has ended."""
POLL_SECONDS = 2.0
"""Polling interval: a job runs for hours, and its API server has other work."""
NUM_FOLLOWED = 16
"""Maximum number of nodes whose logs are followed: each takes a connection."""
LAST_LINES = 20
"""Number of last lines that are shown of another node that failed."""
SILENCE_SECONDS = 5.0
"""Maximum seconds of silence after a job's end until a new connection reads its last lines."""
FINISH_SECONDS = 120.0
"""Maximum seconds after a job's end to read the last lines of its pods."""


READ_ONLY = "The code's folder is read-only: let the program write to the one that TRAINYARD_RUN_DIR names"
_REFUSED_WRITE = re.compile(
    rb"\[Errno (13|30)\] [\w -]+: '(?!/(?!mnt/job/code))|inline_container.*(Permission denied|Read-only file)"
)
"""Errors of Python for a relative path or a path in the code's folder, and those of `torch.save`."""
END = b"end"
"""Last line after the stored lines."""
READ = ("/bin/sh", "-c", f'python3 -c "$READ_LOGS" "$@" && echo {END.decode()}', "sh")
READS = 5
"""Maximum number of reads of the same lines: of 22 MB on a busy host one in ten ended early."""


@dataclass(frozen=True)
class Selection:
    """Choice of lines by rank, node and attempt; -1: all."""

    rank: int = ALL
    node: int = ALL
    attempt: int = ALL


@dataclass(frozen=True)
class Line:
    """A line that a node of a job wrote."""

    attempt: int
    node: int
    host: str
    """Name of the Kubernetes node."""
    moment: str
    """Time of the line in UTC, without a zone."""
    text: bytes


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

    def copy(self) -> "LogPosition":
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
    """Copies the output of a job's nodes to the standard output, each line once, across reconnections.

    Args:
        jobs: jobs of the cluster.
        key: the job's.
        num_nodes: number of its nodes; each line of several names its node.
        node: the only node that is shown; ALL: the first `limit`, and those that fail.
        limit: maximum number of nodes that are shown from their first line on.
    """

    def __init__(
        self, jobs: Jobs, key: JobKey, num_nodes: int, *, node: int = ALL, limit: int = NUM_FOLLOWED
    ) -> None:
        self._jobs, self._key, self._num_nodes = jobs, key, num_nodes
        self._node, self._limit = node, limit
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
        if self._num_nodes <= self._limit:
            return ""
        rest = f"all: trainyard logs -f {self._key.name}"
        return f"nodes 0 to {self._limit - 1} of {self._num_nodes} are shown, and others that fail; {rest}"

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
        deadline = time.monotonic() + FINISH_SECONDS
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
        if self._node != ALL:
            return pod.number == self._node
        return pod.number < self._limit or pod.phase == "Failed"

    def _copy(self, log: _PodLog) -> None:
        with self._lock:
            position = log.position.copy()
        since = position.since
        tail = None if since or log.pod.number < self._limit else LAST_LINES
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
    waiting, advised = "", False
    if shown.left_out:
        log(f"  {shown.left_out}")
    for state, decisions in states(jobs, key, POLL_SECONDS):
        for text in decisions:
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
    return state


def write_line(text: bytes, node: int | None = None) -> None:
    """Write a line of a job to the standard output, after the node's number if one is given."""
    mark = b"" if node is None else f"node {node} | ".encode()
    sys.stdout.buffer.write(mark + text + b"\n")


class StoredLogs:
    """The stored logs of one job; `trainyard job bundle` reads it too."""

    def __init__(self, session: Session, key: JobKey) -> None:
        self._session, self._key = session, key
        self._reader = PodContainer(names.logs_reader(key.team), names.LOGS_NAMESPACE, "reader")
        self._end: float | None = None

    @cached_property
    def job(self) -> Object | None:
        """The TrainJob; None where it was removed."""
        return Jobs(self._session.api).get(self._key)

    def exists(self) -> bool:
        """Whether the cluster keeps logs that the user may read.

        Raises:
            TrainyardError: the pod that reads them does not run.
        """
        path = f"/api/v1/namespaces/{self._reader.namespace}/pods/{self._reader.name}"
        try:
            phase = self._session.api.get(path)["status"].get("phase")
        except ApiError as error:
            if error.status in {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
                return False
            raise
        if phase != "Running":
            raise TrainyardError([_reader_down(self._reader, str(phase))])
        return True

    def lines(self, chosen: Selection, *, follow: bool = False) -> Iterator[Line]:
        """Yield the chosen lines, attempt by attempt in the order of their times; with `follow` as they come.

        Raises:
            TrainyardError: what reads them failed.
        """
        for record in self._followed(chosen) if follow else self._stored("show", chosen):
            attempt, node, host, moment, text = record.split(b" ", 4)
            yield Line(int(attempt), int(node), host.decode(), moment.decode(), text)

    def attempts(self) -> list[int]:
        """Return the numbers of the attempts of which something is retained."""
        found = self._stored("list", Selection())
        return sorted({int(record.split(b" ", 1)[0]) for record in found})

    def _followed(self, chosen: Selection) -> Iterator[bytes]:
        """Yield the lines as they come, across connections that break off or go silent."""
        jobs, position = RetryingJobs(self._session, self._key), _FollowPosition()
        while True:
            connection = jobs.with_retries(lambda: self._started("follow", chosen))
            try:
                yield from position.new_records(_records(connection, self._ended))
                return
            except NoAnswer:
                self._session.progress.log("  logs   the connection broke off; reading on")
            time.sleep(retrying_jobs.RETRY_SECONDS)

    def _stored(self, mode: str, chosen: Selection) -> Iterator[bytes]:
        """Yield the reader's lines up to its END, with further reads where the output ends before.

        Kubernetes may cut a program's output and still report its success (kubernetes#124571).
        """
        count, last = 0, b""
        for _ in range(READS):
            with suppress(NoAnswer):
                for number, record in enumerate(_records(self._started(mode, chosen)), 1):
                    if record == END:
                        return
                    if number == count and record != last:
                        break  # late lines have moved those that were printed
                    if number > count:
                        count, last = number, record
                        yield record
        raise TrainyardError([_not_all("its output ended early")])

    def _started(self, mode: str, chosen: Selection) -> PodConnection:
        since = 0.0
        if self.job:  # an earlier job of that name is another job
            created = datetime.fromisoformat(self.job["metadata"]["creationTimestamp"])
            since = created.timestamp() - CLOCKS_SECONDS
        words = (self._key.name, f"{since:.0f}", mode, str(chosen.node), str(chosen.attempt))
        return Remote(self._session.api).start(self._reader, [*READ, *words], stdin=True, tty=False)

    def _ended(self) -> float | None:
        """Return since when the job is known to have ended; None while it has not."""
        if self._end is None:
            try:
                has_ended = RetryingJobs(self._session, self._key).state(self._key).ended
            except NoSuchJobError:
                has_ended = True
            self._end = time.monotonic() if has_ended else None
        return self._end


class _FollowPosition:
    """The lines that were printed of each node and attempt, which a new reader sends again first."""

    def __init__(self) -> None:
        self._printed: dict[bytes, tuple[int, bytes]] = {}
        """Number of lines, and the last one."""

    def new_records(self, records: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the records of a new reader that were not printed before.

        Raises:
            TrainyardError: late lines have moved those that were printed.
        """
        read: Counter[bytes] = Counter()
        for record in records:
            if record == END:  # the server has closed the reader's standard input
                continue
            node = b" ".join(record.split(b" ", 3)[:3])
            read[node] += 1
            count, last = self._printed.get(node, (0, b""))
            if read[node] == count and record != last:
                raise TrainyardError([_not_all("late lines have moved those that were printed")])
            if read[node] > count:
                self._printed[node] = read[node], record
                yield record


def show_logs(session: Session, name: str, chosen: Selection, *, follow: bool) -> None:
    """Print the lines of a job; with several nodes, each after the node that wrote it.

    Raises:
        InputError: there is no such job, rank, node or attempt.
        TrainyardError: the logs cannot be read.
    """
    key = key_of_stored_logs(session, name)
    logs = StoredLogs(session, key)
    chosen = _of_a_node(chosen, logs.job, key)
    if logs.job is not None and (state := Jobs(session.api).state(key)).reason and not state.ended:
        sys.stderr.write(f"── {key.name} is {state.phase}: {state.reason}\n")
    found = False
    if logs.exists():
        for line in _after_headings(logs.lines(chosen, follow=follow)):
            found = True
            write_line(line.text, line.node if chosen.node == ALL else None)
            if follow:
                sys.stdout.flush()
    if not found:
        _show_running(session, key, chosen, logs.job, follow=follow)


def _after_headings(lines: Iterator[Line]) -> Iterator[Line]:
    """Print on stderr where an attempt begins, so that stdout has the job's lines only."""
    attempt = ALL
    for line in lines:
        if line.attempt != attempt:
            attempt = line.attempt
            sys.stderr.write(f"── attempt {attempt}, since {line.moment[:19]}Z\n")
        yield line


def key_of_stored_logs(session: Session, name: str) -> JobKey:
    """Return the key of a job; of one that was removed, by its name and the only team that there is.

    Raises:
        InputError: there is no such job, and no logs of one.
    """
    try:
        return key_of(session, name)
    except InputError:
        spaces = session.namespaces
        if len(spaces) != 1 or not name:
            raise
        key = JobKey(names.team_of(spaces[0]), name)
        logs = StoredLogs(session, key)
        if logs.exists() and logs.attempts():
            return key
        raise


def ranks_per_node(job: Object | None) -> int | None:
    """Return how many ranks each node of a job has, as Trainer counts them; None where it is not set."""
    if job is None:
        return None
    trainer = job["spec"].get("trainer", {})
    return num_ranks(str(trainer.get("numProcPerNode", 1)), trainer.get("resourcesPerNode", {}))


def _of_a_node(chosen: Selection, job: Object | None, key: JobKey) -> Selection:
    if chosen.rank == ALL:
        return chosen
    if chosen.node != ALL:
        fix = "leave one of them out"
        raise InputError([Problem("--rank and --node", f"{chosen.rank} and {chosen.node}", "one", fix)])
    ranks = ranks_per_node(job)
    if ranks is None:
        got = f"job {key.name} was deleted: the number of ranks per node is unknown"
        raise InputError([Problem("--rank", got, "an existing job", "name the node: --node N")])
    return replace(chosen, node=chosen.rank // ranks)


def _records(connection: PodConnection, ended: Callable[[], float | None] | None = None) -> Iterator[bytes]:
    """Yield the reader's output line by line, until it ends; of a followed job, until the job has ended.

    `ended` returns since when. The connection must have been heard of since then: it may be cut.

    Raises:
        NoAnswer: the connection broke off or is silent, or the reader ended before the followed job.
        TrainyardError: the reader failed.
    """
    rest, errors = b"", b""
    end: float | None = None
    looked = came_at = time.monotonic()
    for _ in connection.rounds():
        connection.update(timeout=1.0)
        came = connection.read(STDOUT)
        *lines, rest = (rest + came).split(b"\n")
        errors += connection.read(STDERR)
        yield from lines
        now = time.monotonic()
        came_at = now if came else came_at  # a slow reader receives lines after the job's end
        if end is not None and now > max(looked, came_at) + LAST_LINES_SECONDS and connection.heard > end:
            connection.close()
            return
        if ended is not None and end is None and now > looked + LOOK_SECONDS:
            looked, end = now, ended()
            if end is not None:
                connection.ping()
    if code := connection.exit_code():
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        raise TrainyardError([_not_all(f"ended with {code}: {last}")])
    if ended is not None:
        raise NoAnswer("the reader ended before the job")


def _not_all(got: str) -> Problem:
    return Problem("the reader of the logs", got, "all lines", "run the command again")


def _reader_down(reader: PodContainer, phase: str) -> Problem:
    return Problem(
        path=f"pod {reader.name} in {reader.namespace}",
        got=phase,
        allowed="a running pod, which has the team's logs",
        fix="ask your platform team; present pods: kubectl logs",
    )


def _show_running(
    session: Session, key: JobKey, chosen: Selection, job: Object | None, *, follow: bool
) -> None:
    """Print the kubelets' logs of existing pods."""
    if job is None or chosen.attempt != ALL:
        raise InputError([_nothing(key, chosen)])
    pods = list(running_logs(session, key, chosen.node))
    if not pods:
        raise InputError([_nothing(key, chosen)])
    sys.stderr.write("── logs of the existing pods only: the stack stores no logs\n")
    if follow:
        jobs, num_nodes = RetryingJobs(session, key), sys.maxsize if chosen.node == ALL else 1
        shown = NodeLogs(jobs, key, num_nodes, node=chosen.node, limit=sys.maxsize)
        try:
            follow_logs(jobs, key, shown, lambda _: None)
        except NoSuchJobError:  # it was deleted: its pods may write until their grace period ends
            shown.finish()
        return
    for pod, lines in pods:
        for text in lines:
            write_line(text, pod.number if chosen.node == ALL else None)


def running_logs(session: Session, key: JobKey, node: int = ALL) -> Iterator[tuple[NodePod, Iterator[bytes]]]:
    """Yield each pod of a job that has started with the lines that its kubelet has."""
    for pod in pods_of(MemberCluster(session), key):
        if pod.phase != "Pending" and node in {ALL, pod.number}:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
            yield pod, whole_lines(session.api.stream(path, {"container": pod.container}))


def _nothing(key: JobKey, chosen: Selection) -> Problem:
    node = "" if chosen.node == ALL else f" of node {chosen.node}"
    attempt = "" if chosen.attempt == ALL else f" in attempt {chosen.attempt}"
    return Problem(
        path=f"job {key.name}",
        got=f"it has no output{node}{attempt}",
        allowed="a job that has been started",
        fix=f"omit the selection: trainyard logs {key.name}"
        if node or attempt
        else "see `trainyard job queue`",
    )
