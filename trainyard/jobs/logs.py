"""`trainyard logs`: prints the logs of all nodes of a job in all its attempts, from stored logs or else from
running pods.

The lines are stored on the cluster's shared filesystem. The command reads them by a program in a pod of the
platform, where members of the team may execute one (`infra/platform/storage/logs.py`). Without that pod, or
before lines of the job are stored, the kubelets' logs of the existing pods are printed.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from http import HTTPStatus

import catalog
from infra.clients.kubernetes import ApiError, NoAnswer, Object, PodConnection
from infra.clients.kubernetes.api import whole_lines
from infra.clients.kubernetes.pods import STDERR, STDOUT
from infra.common import names
from infra.errors import InputError, Problem, TrainyardError
from trainyard.jobs import retrying_jobs
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.key import JobKey
from trainyard.jobs.live_logs import LogPosition, write_line
from trainyard.jobs.node_pods import NodePod
from trainyard.jobs.ranks import pods_of
from trainyard.jobs.remote import Remote
from trainyard.jobs.retrying_jobs import RetryingJobs
from trainyard.jobs.state import Jobs
from trainyard.jobs.submit import key_of
from trainyard.stack.session import Session

ALL = -1
CLOCKS_SECONDS = 5.0
"""Maximum difference between the clocks of a node and of the API server."""
LAST_LINES_SECONDS = 3.0
"""Maximum delay from a pod's output to its stored line; after a job's end, as much silence ends its log."""
LOOK_SECONDS = 3.0
"""Seconds between two checks whether a followed job has ended."""
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
class Reader:
    """The pod that has the logs of a team."""

    name: str
    namespace: str = names.LOGS_NAMESPACE
    container: str = "reader"


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


class StoredLogs:
    """The stored logs of one job; `trainyard bundle` reads it too."""

    def __init__(self, session: Session, key: JobKey) -> None:
        self._session, self._key = session, key
        self._reader = Reader(names.logs_reader(key.team))
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
            jobs = RetryingJobs(self._session, self._key)
            if jobs.get(self._key) is None or jobs.state(self._key).ended:
                self._end = time.monotonic()
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
    number = str(trainer.get("numProcPerNode", 1))
    if number.isdigit():
        return int(number)
    limits = trainer.get("resourcesPerNode", {}).get("limits", {})
    return max(1, *(int(limits.get(kind, 0)) for kind in catalog.accelerator_resources()))


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


def _reader_down(reader: Reader, phase: str) -> Problem:
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
    pods = list(running_logs(session, key, chosen.node, follow=follow))
    if not pods:
        raise InputError([_nothing(key, chosen)])
    sys.stderr.write("── logs of the existing pods only: the stack stores no logs\n")

    def copy(pod: NodePod, lines: Iterator[bytes]) -> None:
        for text in lines:
            write_line(text, pod.number if chosen.node == ALL else None)

    # With `follow` all pods are read in parallel, else node by node.
    with ThreadPoolExecutor(len(pods) if follow else 1) as pool:
        for copied in [pool.submit(copy, *each) for each in pods]:
            copied.result()


def running_logs(
    session: Session, key: JobKey, node: int = ALL, *, follow: bool = False
) -> Iterator[tuple[NodePod, Iterator[bytes]]]:
    """Yield each pod of a job that has started with the lines that its kubelet has."""
    cluster = MemberCluster(session)
    for pod in pods_of(cluster, key):
        if pod.phase == "Pending" or node not in {ALL, pod.number}:
            continue
        if follow:
            yield pod, _followed_pod(RetryingJobs(session, key), key, pod)
        else:
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
            yield pod, whole_lines(session.api.stream(path, {"container": pod.container}))


def _followed_pod(jobs: RetryingJobs, key: JobKey, pod: NodePod) -> Iterator[bytes]:
    """Yield a pod's lines to the end of its container, across connections that break off or go silent."""
    position = LogPosition()
    while True:
        try:
            for moment, text in position.new_lines(jobs.log_stream(pod, since=position.since)):
                position.add(moment)
                yield text
            return
        except NoAnswer:
            time.sleep(retrying_jobs.RETRY_SECONDS)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return
            raise
        if jobs.get(key) is None:  # it asks again while there is no answer
            return


def _nothing(key: JobKey, chosen: Selection) -> Problem:
    node = "" if chosen.node == ALL else f" of node {chosen.node}"
    attempt = "" if chosen.attempt == ALL else f" in attempt {chosen.attempt}"
    return Problem(
        path=f"job {key.name}",
        got=f"it has no output{node}{attempt}",
        allowed="a job that has been started",
        fix=f"omit the selection: trainyard logs {key.name}" if node or attempt else "see `trainyard queue`",
    )
