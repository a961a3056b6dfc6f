"""`trainyard logs` of retained logs, which a reader program in the cluster sends line by line."""

import json
import math
import os
from collections.abc import Sequence
from io import StringIO
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from engine.progress import PlainProgress
from infra.clients.kubernetes import NoAnswer, PodConnection, pods
from infra.clients.kubernetes.api import whole_lines
from infra.errors import InputError, TrainyardError
from tests.processes import TIMEOUT_SECONDS, capture
from tests.trainyard.jobs.connections import STDOUT, Program
from tests.trainyard.jobs.lists import train_job
from trainyard.jobs import logs, retrying_jobs
from trainyard.jobs.key import JobKey
from trainyard.jobs.logs import READS, Selection, StoredLogs, _of_a_node, _records, ranks_per_node

KEY = JobKey("research", "digits")
GPU = {"limits": {"nvidia.com/gpu": "4"}}


def job(**trainer: Any) -> Any:
    return {**train_job("digits"), "spec": {"trainer": {"numNodes": 2, **trainer}}}


@pytest.mark.parametrize(
    ("found", "ranks"),
    [
        (job(numProcPerNode=8), 8),
        (job(numProcPerNode="2"), 2),
        (job(numProcPerNode="auto", resourcesPerNode=GPU), 4),
        (job(), 1),
        (None, None),
    ],
)
def test_the_ranks_of_a_node_are_counted_as_trainer_does(found: Any, ranks: int | None) -> None:
    assert ranks_per_node(found) == ranks


def test_a_rank_is_found_on_its_node() -> None:
    assert _of_a_node(Selection(rank=9), job(numProcPerNode=8), KEY).node == 1
    assert _of_a_node(Selection(node=3), None, KEY).node == 3


def test_a_rank_of_a_deleted_job_and_a_rank_together_with_a_node_are_refused() -> None:
    with pytest.raises(InputError, match="name the node"):
        _of_a_node(Selection(rank=9), None, KEY)
    with pytest.raises(InputError, match="leave one of them out"):
        _of_a_node(Selection(rank=9, node=1), job(), KEY)


class Connection(PodConnection):
    """A fake of the connection to a program that prints these chunks and exits with a code."""

    def __init__(self, chunks: Sequence[bytes | Exception], code: int = 0, errors: bytes = b"") -> None:
        self._chunks, self._errors = list(chunks), errors
        causes = [{"reason": "ExitCode", "message": str(code)}]
        self._status = json.dumps({"status": "Failure" if code else "Success", "details": {"causes": causes}})

        self.heard = math.inf
        """Time of the last frame of the API server."""

    def is_open(self) -> bool:
        return bool(self._chunks)

    def ping(self) -> None:
        """Do nothing: `heard` says whether an answer comes."""

    def update(self, timeout: float = 0) -> None:
        """Do nothing: all chunks have arrived."""

    def close(self) -> None:
        self._chunks = []

    def read(self, channel: int) -> bytes:
        if channel == 1:
            chunk = self._chunks.pop(0) if self._chunks else b""
            if isinstance(chunk, Exception):
                raise chunk
            return chunk
        return self._errors if channel == 2 else self._status.encode()


def test_lines_are_complete_however_frames_divide_them() -> None:
    assert list(_records(Connection([b"one\ntw", b"", b"o\nthree\n"]))) == [b"one", b"two", b"three"]
    assert list(whole_lines(iter([b"one\ntw", b"o\nthree"]))) == [b"one", b"two", b"three"]


def test_lines_that_come_with_the_end_are_read() -> None:
    program = Program()

    def rest() -> None:
        program.writes(STDOUT, b"two\n")
        program.ends(0)

    program.writes(STDOUT, b"one\n")
    program.after_reading(STDOUT, rest)
    assert list(_records(program.connection)) == [b"one", b"two"]


def test_a_slow_client_gets_all_lines_although_the_server_has_closed() -> None:
    program = Program()
    program.writes(STDOUT, b"one\ntwo\n")
    program.ends(0)
    program.close()
    assert list(_records(program.connection)) == [b"one", b"two"]


def test_a_job_that_has_ended_is_followed_until_no_more_lines_come(monkeypatch: pytest.MonkeyPatch) -> None:
    now = count(step=2.0)  # seconds: the consumer of the lines is slow
    monkeypatch.setattr("trainyard.jobs.logs.time.monotonic", lambda: next(now))
    chunks = [b"%d\n" % number for number in range(20)]
    follower = Connection([*chunks, *[b""] * 20])
    assert list(_records(follower, lambda: 0.0)) == [b"%d" % number for number in range(20)]
    assert not follower.is_open(), "it is closed by who follows"


def test_a_reader_that_fails_does_not_count_as_the_end_of_the_log() -> None:
    with pytest.raises(TrainyardError, match="ended with 1: OSError: stale file handle"):
        list(_records(Connection([b"one\n"], 1, b"Traceback\nOSError: stale file handle\n")))


def texts_of(outputs: list[bytes], monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the lines that are shown where the reader's outputs follow each other, each with code 0."""
    return [line.text for line in reading(outputs, monkeypatch).lines(Selection())]


def reading(outputs: list[bytes], monkeypatch: pytest.MonkeyPatch) -> StoredLogs:
    """Return stored logs whose reader prints the outputs, one per connection."""
    return connected([Connection([output]) for output in outputs], monkeypatch)


def connected(connections: list[Connection], monkeypatch: pytest.MonkeyPatch) -> StoredLogs:
    """Return stored logs whose reader has these connections, one after another, and takes them away."""
    monkeypatch.setattr(StoredLogs, "_started", lambda *_: connections.pop(0))
    return StoredLogs(SimpleNamespace(progress=PlainProgress(StringIO()), api=None), KEY)  # type: ignore[arg-type]


def output(texts: str, end: str = "end\n") -> bytes:
    lines = (f"0 1 host 2026-11-26T16:00:0{at} {text}\n" for at, text in enumerate(texts))
    return "".join((*lines, end)).encode()


@pytest.mark.parametrize(
    "cut",
    [
        [output("abc", end="")],
        [output("abc", end="0 1 host 2026-11-26T1")],
        [output("abc", end=""), output("a", end="")],
        [output("a", end=""), output("", end=""), output("abc", end="")],
    ],
    ids=["between lines", "in a line", "then before", "thrice"],
)
def test_an_output_that_kubernetes_cuts_is_read_again_and_each_line_is_shown_once(
    cut: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert texts_of([*cut, output("abcd")], monkeypatch) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("again", ["abc", "axbc"], ids=["always cut", "moved by a late line"])
def test_logs_that_are_never_whole_are_an_error(again: str, monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = [output("abc", end=""), *[output(again, end="")] * READS]
    with pytest.raises(TrainyardError, match="its output ended early"):
        texts_of(outputs, monkeypatch)


@pytest.fixture
def _without_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LOOK_SECONDS", 0)
    monkeypatch.setattr(logs, "LAST_LINES_SECONDS", 0)
    monkeypatch.setattr(retrying_jobs, "RETRY_SECONDS", 0)


@pytest.mark.usefixtures("_without_waits")
@pytest.mark.parametrize(
    "cut",
    [output("ab"), output("abc", end=""), output("ab", end="0 1 host 2026-11-26T1"), b""],
    ids=["reader ended", "between lines", "in a line", "at once"],
)
@pytest.mark.parametrize("is_broken", [False, True], ids=["closed", "broken"])
def test_a_follower_reads_on_after_a_cut_and_shows_each_line_once(
    cut: bytes, is_broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Connection([cut, *([NoAnswer("reset")] if is_broken else [])])
    last = Connection([output("abcd", end=""), *[b""] * 10_000])
    connections = [broken, Connection([output("ab", end="")]), last]
    stored = connected(connections, monkeypatch)
    monkeypatch.setattr(StoredLogs, "_ended", lambda _: None if connections else 0.0)
    assert [line.text for line in stored.lines(Selection(), follow=True)] == [b"a", b"b", b"c", b"d"]


@pytest.mark.usefixtures("_without_waits")
def test_a_job_has_not_ended_for_a_follower_whose_connection_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The last lines may not have come."""
    silent = Connection([output("a", end=""), *[b""] * 100])
    silent.heard = -1.0
    last = Connection([output("ab", end=""), *[b""] * 10_000])
    stored = connected([silent, last], monkeypatch)
    monkeypatch.setattr(StoredLogs, "_ended", lambda _: 0.0)
    assert [line.text for line in stored.lines(Selection(), follow=True)] == [b"a", b"b"]


@pytest.mark.usefixtures("_without_waits")
def test_a_follower_whose_lines_were_moved_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = reading([output("ab", end=""), output("axb", end="")], monkeypatch)
    monkeypatch.setattr(StoredLogs, "_ended", lambda _: None)
    with pytest.raises(TrainyardError, match="late lines have moved"):
        list(stored.lines(Selection(), follow=True))


def test_a_connection_that_answers_no_ping_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A NAT has dropped it: the kernel sees no end, and nothing comes."""
    monkeypatch.setattr(pods, "PING_SECONDS", 0.01)
    monkeypatch.setattr(pods, "PONG_SECONDS", 0.1)
    program = Program()
    program.writes(STDOUT, b"one\n")
    found = _records(program.connection, lambda: None)
    assert next(found) == b"one"
    with pytest.raises(NoAnswer, match="no answer for"):
        next(found)


def test_a_connection_that_answers_pings_may_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pods, "PONG_SECONDS", 0.0)
    program = Program()
    before = program.connection.heard
    program.connection.ping()
    program.answers_ping()
    program.connection.update(timeout=TIMEOUT_SECONDS)
    assert program.connection.heard > before
    program.connection.ping()
    with pytest.raises(NoAnswer, match="no answer for"):
        program.connection.update(timeout=0.01)


def test_the_end_comes_only_after_a_reader_that_succeeds() -> None:
    for program, expected in {"print(1)": "1\nend\n", "print(1); raise SystemExit(3)": "1\n"}.items():
        done = capture([*logs.READ, "job"], env={**os.environ, "READ_LOGS": program})
        assert (done.stdout, done.returncode) == (expected, 3 if "Exit" in program else 0)
