"""A connection that is cut silently is noticed: requests are repeated, and logs continue where they were."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from urllib3 import Retry

from infra.clients.kubernetes import ApiServer, NoAnswer, pods
from infra.clients.kubernetes import api as api_module
from tests.processes import TIMEOUT_SECONDS
from tests.servers import kubeconfig_of
from tests.trainyard.jobs.lists import pod
from tests.trainyard.jobs.silent_server import SilentServer, silent_server
from trainyard.jobs import logs
from trainyard.jobs.key import JobKey
from trainyard.jobs.node_pods import NodePod, newest_of_each_node
from trainyard.jobs.state import Jobs, JobState
from trainyard.stack.access import api_from
from trainyard.stack.remote import Remote

KEY = JobKey("research", "tune")
SHORT_SECONDS = 0.3
"""A timeout that may also end a slow answer: then the request is repeated once more."""
LINES = [
    ("2026-01-01T00:00:00.100000000Z", "one"),
    ("2026-01-01T00:00:01.500000000Z", "two"),
    ("2026-01-01T00:00:01.500000000Z", "three, at the same time"),
    ("2026-01-01T00:00:01.400000000Z", "four, of the other stream"),
    ("2026-01-01T00:00:05.000000000Z", "five"),
]
TEXTS = [text.encode() for _, text in LINES]


@pytest.fixture
def server() -> Iterator[SilentServer]:
    with silent_server() as made:
        made.lines = LINES
        yield made


def api_of(server: SilentServer, tmp_path: Path) -> ApiServer:
    return api_from(json.dumps(kubeconfig_of(server.url, {"token": "mei"})), tmp_path)


def in_time(call: Callable[[], Any]) -> Any:
    """Return a call's result; a call that does not end fails the test and does not hold it up."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()), daemon=True)
    thread.start()
    thread.join(TIMEOUT_SECONDS)
    assert found, "it does not end, or has failed"
    return found[0]


class JobOfOnePod(Jobs):
    """A job that ends once an event has happened; the server has the log of its pod."""

    def __init__(self, api: ApiServer, ends: threading.Event) -> None:
        super().__init__(api)
        self._ends = ends

    def state(self, _key: JobKey) -> JobState:
        return JobState("complete" if self._ends.is_set() else "running", "spot")

    def node_pods(self, key: JobKey) -> list[NodePod]:
        phase = "Succeeded" if self._ends.is_set() else "Running"
        return newest_of_each_node([pod(key.name, 0, "spot-0", phase=phase)])


def followed(server: SilentServer, tmp_path: Path, ends: threading.Event) -> list[str]:
    """Follow the job's log to its end; return what was reported about the job."""
    messages: list[str] = []
    jobs = JobOfOnePod(api_of(server, tmp_path), ends)
    shown = logs.NodeLogs(jobs, KEY, 1)
    in_time(lambda: logs.follow_logs(jobs, KEY, shown, messages.append))
    return messages


@pytest.mark.parametrize("num_whole", range(len(LINES)))
def test_a_log_is_followed_across_silent_cuts_without_a_lost_or_repeated_line(
    server: SilentServer,
    num_whole: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Wherever it is cut, within a line too."""
    monkeypatch.setattr(api_module, "SILENCE_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.05)
    whole = "".join(f"{at} {text}\n" for at, text in LINES[:num_whole])
    at, text = LINES[num_whole]
    server.cuts = [whole, f"{whole}{at} {text[:2]}"]
    followed(server, tmp_path, server.is_read)
    assert capfdbinary.readouterr().out.splitlines() == TEXTS


def test_the_last_lines_of_an_ended_job_are_read_by_a_new_connection(
    server: SilentServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    answers = iter([True])
    monkeypatch.setattr(logs.NodeLogs, "_is_silent", lambda _: not server.cuts and next(answers, False))
    server.cuts = [f"{LINES[0][0]} {LINES[0][1]}\n"]
    ended = threading.Event()
    ended.set()
    assert not [text for text in followed(server, tmp_path, ended) if "missing" in text]
    assert capfdbinary.readouterr().out.splitlines() == TEXTS


def test_an_ended_job_whose_last_lines_cannot_be_read_is_reported_as_such(
    server: SilentServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs.NodeLogs, "_is_silent", lambda _: True)
    server.cuts = [""] * 100
    ended = threading.Event()
    ended.set()
    *_, last = followed(server, tmp_path, ended)
    assert last == "  its last lines may be missing; all lines: trainyard logs tune"


def test_a_request_without_an_answer_is_repeated_on_a_new_connection(
    server: SilentServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "ANSWER_SECONDS", SHORT_SECONDS)
    monkeypatch.setattr(api_module, "RETRIES", Retry(100))
    api = api_of(server, tmp_path)
    server.num_unanswered = 1
    assert in_time(lambda: api.items("/api/v1/pods")) == []


def error_of(ask: Callable[[], object], kind: type[Exception]) -> Exception | None:
    try:
        ask()
    except kind as error:
        return error
    return None


def test_a_server_that_never_answers_is_an_error(
    server: SilentServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "ANSWER_SECONDS", SHORT_SECONDS)
    server.num_unanswered = 1000
    api = api_of(server, tmp_path)
    assert in_time(lambda: error_of(lambda: api.get("/api/v1/pods"), NoAnswer)) is not None


def test_the_kernel_probes_connections(server: SilentServer, tmp_path: Path) -> None:
    """A peer that is gone is noticed while nothing is sent, and while sent bytes get no acknowledgement."""
    pool: Any = api_of(server, tmp_path)._pool()[0]
    connection = pool.connection_from_url(server.url)._get_conn()
    connection.connect()
    named = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
    options = [connection.sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in named]
    options.append(connection.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))
    connection.close()
    assert options == [15, 5, 3, 30_000, 1]


def test_a_pod_behind_a_silent_api_server_is_not_waited_for(
    server: SilentServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handshake of an exec has a timeout too, and the kernel probes its connection."""
    monkeypatch.setattr(pods, "PONG_SECONDS", SHORT_SECONDS)
    server.num_unanswered = 1
    way = Remote(api_of(server, tmp_path))
    [target] = newest_of_each_node([pod(KEY.name, 0, "spot-0")])
    start = partial(way.start, target, ["true"], stdin=False, tty=False)
    assert in_time(lambda: error_of(start, ConnectionError)) is not None
    assert len(server.asked) == 1
