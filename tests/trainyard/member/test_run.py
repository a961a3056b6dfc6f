"""`trainyard run`: what it says when it is cut off, and what it refuses to call the same."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError

from infra.errors import ExitCode, InputError, InterruptedByUser, TrainyardError
from infra.spec import parse_job
from trainyard.jobs import JobKey, Jobs, JobState
from trainyard.member import run as running
from trainyard.member.run import PatientJobs, _check_same, interruptible
from trainyard.member.runtimes import Runtime, StagedDataset

KEY = JobKey("research", "tune")
RUNTIME = Runtime("torch-none", "training:2", (StagedDataset("pile", "pile/sha256-1", "sha256:1"),))
JOB = parse_job({"name": "tune", "team": "research", "runtime": "torch-none", "command": ["python", "a.py"]})


@dataclass
class Known:
    """Jobs of a cluster that answers, or does not."""

    job: dict[str, Any] | None = None
    error: BaseException | None = None

    def get(self, _key: JobKey) -> dict[str, Any] | None:
        if self.error:
            raise self.error
        return self.job


@dataclass
class Told:
    lines: list[str] = field(default_factory=list)

    def said(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Known(), "No job was submitted"),
        (Known({"spec": {}}), "tune goes on; follow it again: trainyard logs -f tune"),
        (Known(error=ProtocolError("reset")), "If tune was submitted (trainyard jobs), it goes on"),
        (Known(error=KeyboardInterrupt()), "If tune was submitted"),
    ],
    ids=["before", "after", "no connection", "pressed twice"],
)
def test_ctrl_c_says_what_stands_at_whatever_moment(known: Known, said: str) -> None:
    session: Any = SimpleNamespace(jobs=known)
    with pytest.raises(InterruptedByUser) as stopped, interruptible(session, KEY):
        raise KeyboardInterrupt
    assert stopped.value.exit_code is ExitCode.INTERRUPTED
    assert said in stopped.value.text


def patient(monkeypatch: pytest.MonkeyPatch, *answers: JobState | Exception) -> tuple[PatientJobs, Told]:
    left = list(answers)

    def state(_self: Jobs, _key: JobKey) -> JobState:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Jobs, "state", state)
    monkeypatch.setattr(running, "RETRY_SECONDS", 0)
    told = Told()
    session: Any = SimpleNamespace(api=None, progress=told)
    return PatientJobs(session, KEY), told


def test_a_connection_that_breaks_off_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (ProtocolError("reset"), ApiException(status=503), ConnectionError())
    jobs, told = patient(monkeypatch, *broken, JobState("running"))
    assert jobs.state(KEY).phase == "running"
    assert told.lines == ["  queue  no answer of the cluster; the job goes on, asking again"]


@pytest.mark.parametrize("status", [401, 403])
def test_an_expired_credential_ends_the_command_and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    jobs, _ = patient(monkeypatch, ApiException(status=status, reason="Unauthorized"))
    with pytest.raises(TrainyardError, match="the job goes on: trainyard logs -f tune") as ended:
        jobs.state(KEY)
    assert ended.value.exit_code is ExitCode.FAILED


def test_who_gets_no_answer_for_long_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "GIVE_UP_SECONDS", -1)
    jobs, _ = patient(monkeypatch, ProtocolError("reset"))
    with pytest.raises(TrainyardError, match="no answer: reset"):
        jobs.state(KEY)


def test_a_rerun_is_of_the_same_image_and_data() -> None:
    same = {"image": "training:2", "datasets": {"pile": "sha256:1"}}
    _check_same(same, JOB, RUNTIME)
    with pytest.raises(InputError) as refused:
        _check_same({"image": "training:1", "datasets": {"pile": "sha256:0", "gone": "x"}}, JOB, RUNTIME)
    assert [each.path for each in refused.value.problems] == ["image", "dataset pile", "dataset gone"]
    pinned = JOB.model_copy(update={"image": f"a@sha256:{'0' * 64}"})
    _check_same({"image": pinned.image}, pinned, RUNTIME)


def test_datasets_that_are_not_staged_are_refused_at_once() -> None:
    job = JOB.model_copy(update={"datasets": ("pile", "crawl", "books")})
    with pytest.raises(InputError) as refused:
        RUNTIME.check_datasets(job)
    assert [(each.got, each.allowed) for each in refused.value.problems] == [
        ("crawl", "pile"),
        ("books", "pile"),
    ]
