"""`submit`, `up` and `run` follow jobs across lost connections; the message of `trainyard cancel`."""

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
from trainyard.jobs.state import Jobs, JobState, Staging
from trainyard.jobs.submit import await_data, run_stack_job, submit_stack_job

JOB = parse_job(
    {"name": "tune", "team": "research", "runtime": "torch-tcp", "config": "digits", "dataset": "pile"}
)
KEY = JobKey(JOB.team, JOB.name)
PILE = SimpleNamespace(name="pile", path="pile/sha256-1", digest="sha256:1")
COMPLETE = JobState("complete")
LOST = (NoAnswer("reset"), ApiError(503, "no"))


def api_with(*keys: JobKey) -> FakeApi:
    """Make the API server of a cluster with these jobs."""
    found: dict[str, list[Any]] = {path_of(TRAIN_JOBS): []}
    for key in keys:
        about = {"name": key.name, "namespace": key.namespace, "annotations": {RUN: "run-7"}}
        job = {"metadata": about, "spec": {}}
        found[path_of(TRAIN_JOBS)].append(job)
        found[path_of(TRAIN_JOBS, key.namespace)] = [job]
        found[path_of(WORKLOADS, key.namespace)] = found[f"/api/v1/namespaces/{key.namespace}/pods"] = []
    return FakeApi(found)


def cancelled(stack_job: str | None, *, on_host: bool = False) -> str:
    """Return the output of `cancel`; `stack_job` is the stack's job, None without a stack file."""
    output = StringIO()
    job = SimpleNamespace(team="research", name=stack_job)
    session: Any = SimpleNamespace(
        stack_name="lab",
        has_file=stack_job is not None,
        is_fleet=False,
        stack=SimpleNamespace(job=job if stack_job else None),
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


@pytest.mark.parametrize("stack_job", [None, "", "digits"], ids=["no file", "no job", "another job"])
def test_submit_is_not_advised_for_a_job_of_run(stack_job: str | None) -> None:
    message = cancelled(stack_job)
    assert (
        message == "removed tune; its files are retained on the team's volume: /mnt/checkpoints/tune/run-7\n"
    )


def test_the_stacks_own_job_is_continued_by_submit() -> None:
    resume = "; to continue: trainyard submit -s lab --run run-7\n"
    assert (
        cancelled("tune")
        == f"removed tune; the checkpoints of run-7 are retained on the team's volume{resume}"
    )
    assert cancelled("tune", on_host=True).endswith(f"are retained in /data/research/tune{resume}")


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
        stack=SimpleNamespace(job=JOB, datasets=(PILE,), pools=()),
        job=JOB,
        api=None,
        is_on_host=on_host,
        cluster=SimpleNamespace(layout=layout),
        run_root=lambda team, name: tmp_path / team / name,
        progress=PlainProgress(output),
        console=Console(file=output, width=200),
    )


def submit_and_follow(session: Any) -> None:
    submit_stack_job(session, follows=True)


def up(session: Any) -> None:
    run_stack_job(session, 0.0)


def run(session: Any) -> None:
    follow(session, KEY, "run-7", 1)


@pytest.mark.parametrize("on_host", [False, True], ids=["remote", "embedded"])
@pytest.mark.parametrize("command", [submit_and_follow, up, run])
def test_every_command_follows_its_job_across_a_lost_connection(
    command: Callable[[Any], None], on_host: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = UnsteadyCluster(monkeypatch, *LOST, JobState("running"), *LOST, COMPLETE, COMPLETE)
    monkeypatch.setattr("trainyard.jobs.spot.cloud", lambda _: nullcontext())
    monkeypatch.setattr("trainyard.jobs.summary.show", lambda *_: None)
    output = StringIO()
    command(session_of(output, tmp_path, on_host=on_host))
    assert output.getvalue().count("no answer from the cluster; the job continues; retrying") == 2
    assert len(cluster.submitted) == (command is not run)


def test_a_wait_for_data_survives_a_lost_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, output = UnsteadyCluster(monkeypatch), StringIO()
    cluster.stagings = [*LOST, Staging("under way"), *LOST, Staging("staged")]
    await_data(session_of(output, tmp_path), JOB)
    assert output.getvalue().count("no answer from the cluster; retrying") == 2
    cluster.stagings = [ApiError(401, "no")]
    with pytest.raises(TrainyardError, match="no job was submitted: then run the same command again"):
        await_data(session_of(output, tmp_path), JOB)


@pytest.mark.parametrize("command", [submit_and_follow, up])
def test_a_submission_of_the_stacks_job_that_broke_off_may_have_arrived(
    command: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    UnsteadyCluster(monkeypatch)

    def cut(_jobs: Jobs, _body: object) -> None:
        raise NoAnswer("reset")

    monkeypatch.setattr(Jobs, "submit", cut)
    with pytest.raises(TrainyardError, match=r"if tune was submitted .* trainyard logs -f tune"):
        command(session_of(StringIO(), tmp_path))


def test_ctrl_c_while_the_stacks_job_is_followed_names_how_to_follow_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To submit it again would be refused."""
    UnsteadyCluster(monkeypatch, KeyboardInterrupt())
    found = iter([None])
    monkeypatch.setattr(Jobs, "get", lambda *_: next(found, {"spec": {}}))
    monkeypatch.setattr(run_module, "new_run", lambda *_: "run-7")
    with pytest.raises(InterruptedByUser) as stopped:
        submit_and_follow(session_of(StringIO(), tmp_path))
    assert "tune continues; follow it again: trainyard logs -f tune" in stopped.value.text
