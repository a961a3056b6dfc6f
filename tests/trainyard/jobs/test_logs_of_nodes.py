"""Following a job's nodes while connections break off, pods are replaced, and some nodes fail."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from infra.clients.kubernetes import ApiError, NoAnswer
from infra.clients.kubernetes.api import path_of
from infra.errors import TrainyardError
from tests.processes import TIMEOUT_SECONDS
from tests.tables import table
from tests.trainyard.jobs.fake_api import FakeApi
from tests.trainyard.jobs.lists import admitted, condition, pod, train_job, workload
from trainyard.jobs import logs
from trainyard.jobs.key import WORKLOADS, JobKey
from trainyard.jobs.logs import Selection
from trainyard.jobs.node_pods import NodePod, Object, newest_of_each_node
from trainyard.jobs.state import Jobs, JobState

KEY = JobKey("research", "tune")
Stream = Sequence[bytes | Exception]
BROKEN = NoAnswer("Connection broken")
RUNNING, COMPLETE, FAILED = JobState("running"), JobState("complete"), JobState("failed")


class NodesJobs(Jobs):
    """A fake of a job's pods: each has a list of log streams, one per connection; then the log has ended."""

    def __init__(self, *polls: Sequence[Object] | Exception, **streams: Sequence[Stream]) -> None:
        self.polls, self.streams = list(polls), {name: list(each) for name, each in streams.items()}
        self.asked: list[tuple[str, str, int | None]] = []

    def node_pods(self, key: JobKey) -> list[NodePod]:
        assert key == KEY
        found = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
        if isinstance(found, Exception):
            raise found
        return newest_of_each_node(found)

    def log_stream(self, pod: NodePod, *, since: str = "", tail: int | None = None) -> Iterator[bytes]:
        self.asked.append((pod.name, since, tail))
        streams = self.streams.get(f"n{pod.number}", [])
        for chunk in streams.pop(0) if streams else []:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


class StatesJobs:
    def __init__(self, *states: JobState) -> None:
        self._states = list(states)

    def state(self, _key: JobKey) -> JobState:
        return self._states.pop(0)


def node(number: int, name: str = "", **status: Any) -> Object:
    made = pod(KEY.name, number, f"spot-{number}", **status)
    about: Mapping[str, Any] = made["metadata"]
    return {**made, "metadata": {**about, "name": name or about["name"], "uid": name}}


def followed(
    cluster: NodesJobs, *states: JobState, num_nodes: int = 2, limit: int = 16
) -> tuple[list[str], JobState]:
    """Return the log lines of the job, and its final state."""
    messages: list[str] = []
    jobs: Any = StatesJobs(*states)
    shown = logs.NodeLogs(cluster, KEY, num_nodes, limit=limit)
    return messages, logs.follow_logs(jobs, KEY, shown, messages.append)


@pytest.fixture(autouse=True)
def _short_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(logs, "SILENCE_SECONDS", TIMEOUT_SECONDS)


def test_each_line_of_each_node_is_shown_once_over_connections_that_break_off(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    ended = [node(0, phase="Succeeded"), node(1, phase="Succeeded")]
    cluster = NodesJobs(
        NoAnswer("/api/v1/pods"),
        [node(0), node(1)],
        ended,
        n0=[[b"T1 one\nT2 tw", BROKEN], [b"T1 one\nT2 two\nT3 three\n"]],
        n1=[[ApiError(400, "no")], [b"T1 other\xff\n"]],
    )
    _, state = followed(cluster, RUNNING, RUNNING, COMPLETE)
    assert state is COMPLETE
    lines = capfdbinary.readouterr().out.splitlines()
    assert [line for line in lines if b"node 0" in line] == [
        b"node 0 | one",
        b"node 0 | two",
        b"node 0 | three",
    ]
    assert [line for line in lines if b"node 1" in line] == [b"node 1 | other\xff"]
    assert ("tune-node-0-0-abcde", "T1", None) in cluster.asked


def test_lines_of_a_single_node_have_no_prefix(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    cluster = NodesJobs([node(0, phase="Succeeded")], n0=[[b"T1 10%|#   | 1/10\n"]])
    followed(cluster, COMPLETE, num_nodes=1)
    assert capfdbinary.readouterr().out == b"10%|#   | 1/10\n"


def test_pods_that_replace_others_are_followed_and_named(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    cluster = NodesJobs(
        [node(0, "first"), node(1, phase="Pending")],
        [node(0, "second", phase="Succeeded")],
        n0=[[b"T1 before\n"], [b"T2 after\n"]],
    )
    messages, _ = followed(cluster, RUNNING, COMPLETE)
    assert messages[-1] == "  queue  its pods were started again"
    assert capfdbinary.readouterr().out == b"node 0 | before\nnode 0 | after\n"


def test_of_many_nodes_the_first_are_followed_and_the_last_lines_of_failed_ones(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    found = [node(0, phase="Succeeded"), node(1, phase="Failed"), node(2, phase="Succeeded")]
    cluster = NodesJobs(found, n0=[[b"T1 ok\n"]], n1=[[b"T1 RuntimeError: boom\n"]], n2=[[b"T1 unseen\n"]])
    messages, _ = followed(cluster, FAILED, num_nodes=3, limit=1)
    assert messages[0] == "  nodes 0 to 0 of 3 are shown, and others that fail; all: trainyard logs -f tune"
    assert sorted(capfdbinary.readouterr().out.splitlines()) == [
        b"node 0 | ok",
        b"node 1 | RuntimeError: boom",
    ]
    assert ("tune-node-0-1-abcde", "", logs.LAST_LINES) in cluster.asked


def test_the_command_ends_although_a_log_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "SILENCE_SECONDS", 0.5)
    refused = [[ApiError(500, "no")]] * 1000
    cluster = NodesJobs([node(0, phase="Failed")], n0=refused)
    _, state = followed(cluster, FAILED)
    assert state is FAILED


def test_a_closed_output_ends_the_command_and_not_the_job(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(_text: bytes, _node: int | None) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(logs, "write_line", full)
    cluster = NodesJobs([node(0)], n0=[[b"T1 one\n"]] * 100)
    with pytest.raises(TrainyardError, match=r"No space left(.|\n)*tune continues; .*trainyard logs -f tune"):
        followed(cluster, *[RUNNING] * 100)
    assert len(cluster.asked) <= 2


@pytest.mark.parametrize(("line", "found"), table(__file__, "read_only"))
def test_who_writes_beside_the_code_is_noticed(line: str, found: bool) -> None:
    cluster = NodesJobs([node(0, phase="Failed")], n0=[[f"T1 {line}\n".encode()]])
    messages, _ = followed(cluster, RUNNING, FAILED, num_nodes=1)
    assert messages.count(f"  {logs.READ_ONLY}") == found


class ApiOfEnd(FakeApi):
    """A fake API server of a job that runs at the first look, and at the next has ended so or was deleted."""

    def __init__(self, *ends: str) -> None:
        within = f"/api/v1/namespaces/{KEY.namespace}"
        pods = [node(number, phase="Succeeded") for number in range(2)]
        super().__init__({f"{within}/pods": pods, f"{within}/events": []})
        self.lists[path_of(WORKLOADS, KEY.namespace)] = [workload(KEY.name, *admitted())]
        self.states = [train_job(KEY.name), *(train_job(KEY.name, condition(end)) for end in ends), None]

    def find(self, path: str, _query: object = None) -> Any:
        assert path == KEY.path
        return self.states.pop(0)

    def stream(self, path: str, _query: object) -> Iterator[bytes]:
        yield f"T1 of {path.split('/')[-2]}\n".encode()


@pytest.mark.parametrize("ends", [(), ("Complete",), ("Failed",)])
@pytest.mark.parametrize(
    ("chosen", "shown"),
    [
        (Selection(), [b"node 0 | of tune-node-0-0-abcde", b"node 1 | of tune-node-0-1-abcde"]),
        (Selection(node=1), [b"of tune-node-0-1-abcde"]),
    ],
)
def test_where_no_logs_are_stored_those_of_the_pods_are_followed_to_the_jobs_end(
    ends: tuple[str], chosen: Selection, shown: list[bytes], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    progress = SimpleNamespace(log=print)
    session: Any = SimpleNamespace(
        api=ApiOfEnd(*ends), progress=progress, team="", namespaces=["team-research"]
    )
    logs._show_running(session, KEY, chosen, train_job(KEY.name), follow=True)
    assert sorted(capfdbinary.readouterr().out.splitlines()) == shown
