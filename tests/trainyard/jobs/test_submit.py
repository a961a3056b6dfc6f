"""`up` and `run` follow jobs across lost connections; the message of `trainyard cancel`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from engine.progress import PlainProgress
from infra.clients.kubernetes import ApiError, NoAnswer
from infra.clients.kubernetes.api import path_of
from infra.errors import InputError, InterruptedByUser, TrainyardError
from infra.stackfile import parse_job
from tests.trainyard.jobs.fake_api import FakeApi
from trainyard.jobs import follow as following
from trainyard.jobs import logs, retrying_jobs
from trainyard.jobs import submit as run_module
from trainyard.jobs.cancel import cancel_job
from trainyard.jobs.cluster import key_of
from trainyard.jobs.follow import follow
from trainyard.jobs.key import RUN, TRAIN_JOBS, WORKLOADS, JobKey
from trainyard.jobs.placement import JobPlacement, PlacedJob
from trainyard.jobs.runtimes import StagedDataset
from trainyard.jobs.state import Jobs, JobState, Staging
from trainyard.jobs.submit import Ready, _run_to_end, await_data, submit_job
from trainyard.source.options import RunRequest

_WHAT = {"args": ["--config", "digits"], "datasets": ["pile"]}
JOB = parse_job({"name": "tune", "team": "research", "runtime": "torch-tcp", **_WHAT})
READY = Ready(PlacedJob(JOB, JobPlacement("research"), ()), (StagedDataset("pile", "pile/1", "sha256:1"),))
KEY = JobKey(JOB.team, JOB.name)
COMPLETE = JobState("complete")
LOST = (NoAnswer("reset"), ApiError(503, "no"))


def api_with(*keys: JobKey) -> FakeApi:
    """Make the API server of a cluster with these jobs."""
    found: dict[str, list[Any]] = {path_of(TRAIN_JOBS): []}
    for day, key in enumerate(keys):
        about = {"name": key.name, "namespace": key.namespace, "annotations": {RUN: "run-7"}}
        about["creationTimestamp"] = f"2026-01-{day + 1:02d}T00:00:00Z"
        job = {"metadata": about, "spec": {}}
        found[path_of(TRAIN_JOBS)].append(job)
        found[path_of(TRAIN_JOBS, key.namespace)] = [job]
        found[path_of(WORKLOADS, key.namespace)] = found[f"/api/v1/namespaces/{key.namespace}/pods"] = []
    return FakeApi(found)


def cancelled(*, on_host: bool) -> str:
    """Return the output of `cancel`."""
    output = StringIO()
    session: Any = SimpleNamespace(
        team="",
        namespaces=["team-research"],
        api=api_with(KEY),
        is_on_host=on_host,
        run_root=lambda team, name: Path("/data") / team / name,
        console=Console(file=output, width=200),
    )
    cancel_job(session, "tune")
    assert Jobs(session.api).get(KEY) is None
    return output.getvalue()


@pytest.mark.parametrize(
    ("on_host", "place"),
    [(False, "on the team's volume: /mnt/checkpoints/tune/run-7"), (True, "in /data/research/tune")],
)
def test_a_cancelled_job_leaves_its_files_and_the_way_to_continue(on_host: bool, place: str) -> None:
    resume = "to continue from them: trainyard run JOB.YAML --name tune --run run-7"
    assert cancelled(on_host=on_host) == f"removed tune; its files are retained {place}; {resume}\n"


def test_without_a_name_the_newest_job_is_meant() -> None:
    session: Any = SimpleNamespace(team="", namespaces=[], api=api_with(KEY, JobKey("speech", "last")))
    assert key_of(session, "") == JobKey("speech", "last")
    session.team = "research"
    assert key_of(session, "") == KEY
    session.team = "vision"
    with pytest.raises(InputError, match="got:     nothing"):
        key_of(session, "")


def test_the_team_selects_one_of_two_jobs_with_the_same_name() -> None:
    known = [JobKey("research", "tune"), JobKey("speech", "tune")]
    session: Any = SimpleNamespace(team="", namespaces=[], api=api_with(*known))
    with pytest.raises(InputError, match=r"research, speech have\n.*\n.*--team TEAM"):
        key_of(session, "tune")
    session.team = "speech"
    assert key_of(session, "tune") == JobKey("speech", "tune")
    session.team = "vision"
    with pytest.raises(InputError, match="there is none"):
        key_of(session, "tune")


class UnsteadyCluster:
    """A cluster whose answers about a job are lost in between: an exception is raised in its turn."""

    def __init__(self, patch: pytest.MonkeyPatch, *states: JobState | BaseException) -> None:
        self.submitted: list[Any] = []
        self.stagings: list[Staging | BaseException] = [Staging("staged")]
        self._states = list(states)
        patch.setattr(retrying_jobs, "RETRY_SECONDS", 0)
        patch.setattr(following, "POLL_SECONDS", 0)
        patch.setattr(logs, "POLL_SECONDS", 0)
        patch.setattr(run_module, "STAGING_POLL_SECONDS", 0)
        patch.setattr(run_module, "_checked", lambda *_: READY)
        patch.setattr(Jobs, "get", lambda *_: None)
        patch.setattr(Jobs, "delete_and_wait", lambda *_: None)
        patch.setattr(Jobs, "submit", lambda _, body: self.submitted.append(body))
        patch.setattr(Jobs, "node_pods", lambda *_: [])
        patch.setattr(Jobs, "state", lambda *_: self._next(self._states))
        patch.setattr(Jobs, "staging", lambda *_: self._next(self.stagings))

    @staticmethod
    def _next(answers: list[Any]) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def session_of(output: StringIO, tmp_path: Path, *, on_host: bool = False) -> Any:
    layout = SimpleNamespace(events=tmp_path / "events.jsonl")
    return SimpleNamespace(
        stack_name="lab",
        api=None,
        is_on_host=on_host,
        cluster=SimpleNamespace(layout=layout),
        run_root=lambda team, name: tmp_path / team / name,
        progress=PlainProgress(output),
        console=Console(file=output, width=200),
    )


def run(session: Any) -> None:
    submit_job(session, JOB, JOB.team, RunRequest(), dry_run=False, detach=False)


def up(session: Any) -> None:
    _run_to_end(session, 0.0, job=JOB, code=None)


def watch(session: Any) -> None:
    follow(session, KEY, "run-7", 1)


@pytest.mark.parametrize("on_host", [False, True], ids=["remote", "embedded"])
@pytest.mark.parametrize("command", [run, up, watch])
def test_every_command_follows_its_job_across_a_lost_connection(
    command: Callable[[Any], None], on_host: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = UnsteadyCluster(monkeypatch, *LOST, JobState("running"), *LOST, COMPLETE, COMPLETE)
    monkeypatch.setattr("trainyard.jobs.spot.cloud", lambda _: nullcontext())
    monkeypatch.setattr("trainyard.jobs.summary.show", lambda *_: None)
    output = StringIO()
    command(session_of(output, tmp_path, on_host=on_host))
    assert output.getvalue().count("no answer from the cluster; the job continues; retrying") == 2
    assert len(cluster.submitted) == (command is not watch)


def test_a_wait_for_data_survives_a_lost_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, output = UnsteadyCluster(monkeypatch), StringIO()
    cluster.stagings = [*LOST, Staging("under way"), *LOST, Staging("staged")]
    await_data(session_of(output, tmp_path), JOB)
    assert output.getvalue().count("no answer from the cluster; retrying") == 2
    cluster.stagings = [ApiError(401, "no")]
    with pytest.raises(TrainyardError, match="no job was submitted: then run the same command again"):
        await_data(session_of(output, tmp_path), JOB)


@pytest.mark.parametrize("command", [run, up])
def test_a_submission_of_a_job_that_broke_off_may_have_arrived(
    command: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    UnsteadyCluster(monkeypatch)

    def cut(_jobs: Jobs, _body: object) -> None:
        raise NoAnswer("reset")

    monkeypatch.setattr(Jobs, "submit", cut)
    message = r"if tune was submitted .* follow it again: trainyard logs -f tune"
    with pytest.raises(TrainyardError, match=message):
        command(session_of(StringIO(), tmp_path))


def test_ctrl_c_while_a_job_is_followed_names_how_to_follow_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To submit it again would be refused."""
    UnsteadyCluster(monkeypatch, KeyboardInterrupt())
    found = iter([None])
    monkeypatch.setattr(Jobs, "get", lambda *_: next(found, {"spec": {}}))
    monkeypatch.setattr(run_module, "new_run", lambda *_: "run-7")
    with pytest.raises(InterruptedByUser) as stopped:
        run(session_of(StringIO(), tmp_path))
    assert "tune continues; follow it again: trainyard logs -f tune" in stopped.value.text
