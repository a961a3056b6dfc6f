"""`trainyard run`: what it says when it is cut off, and what it refuses to call the same."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError

from infra import names
from infra.errors import ExitCode, InputError, InterruptedByUser, TrainyardError
from infra.platform.runtimes import _staged
from infra.spec import parse_job
from infra.spec.dataset import DatasetSpec
from trainyard.jobs import JobKey, Jobs, JobState
from trainyard.member import run as running
from trainyard.member.run import PatientJobs, _check_same, interruptible
from trainyard.member.runtimes import Runtime, StagedDataset, _read

KEY = JobKey("research", "tune")
RUNTIME = Runtime("torch-none", "training:2", (StagedDataset("pile", "pile/sha256-1", "sha256:1"),))
JOB = parse_job({"name": "tune", "team": "research", "runtime": "torch-none", "command": ["python", "a.py"]})


@dataclass
class KnownJobs:
    """Jobs of a cluster that answers, or does not."""

    job: dict[str, Any] | None = None
    error: BaseException | None = None

    def get(self, _key: JobKey) -> dict[str, Any] | None:
        if self.error:
            raise self.error
        return self.job


@dataclass
class ConsoleOutput:
    lines: list[str] = field(default_factory=list)

    def log(self, text: str) -> None:
        self.lines.append(text)


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (KnownJobs(), "No job was submitted"),
        (KnownJobs({"spec": {}}), "tune goes on; follow it again: trainyard logs -f tune"),
        (KnownJobs(error=ProtocolError("reset")), "If tune was submitted (trainyard jobs), it goes on"),
        (KnownJobs(error=KeyboardInterrupt()), "If tune was submitted"),
    ],
    ids=["before", "after", "no connection", "pressed twice"],
)
def test_ctrl_c_says_what_stands_at_whatever_moment(known: KnownJobs, message: str) -> None:
    session: Any = SimpleNamespace(jobs=known)
    with pytest.raises(InterruptedByUser) as stopped, interruptible(session, KEY):
        raise KeyboardInterrupt
    assert stopped.value.exit_code is ExitCode.INTERRUPTED
    assert message in stopped.value.text


def patient(
    monkeypatch: pytest.MonkeyPatch, *answers: JobState | Exception
) -> tuple[PatientJobs, ConsoleOutput]:
    left = list(answers)

    def state(_self: Jobs, _key: JobKey) -> JobState:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Jobs, "state", state)
    monkeypatch.setattr(running, "RETRY_SECONDS", 0)
    output = ConsoleOutput()
    session: Any = SimpleNamespace(api=None, progress=output)
    return PatientJobs(session, KEY), output


def test_a_connection_that_breaks_off_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (ProtocolError("reset"), ApiException(status=503), ConnectionError())
    jobs, output = patient(monkeypatch, *broken, JobState("running"))
    assert jobs.state(KEY).phase == "running"
    assert output.lines == ["  queue  no answer of the cluster; the job goes on, asking again"]


@pytest.mark.parametrize("status", [401, 403])
def test_an_expired_credential_ends_the_command_and_says_how_to_go_on(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    jobs, _ = patient(monkeypatch, ApiException(status=status, reason="Unauthorized"))
    with pytest.raises(TrainyardError, match="the job goes on: trainyard logs -f tune") as ended:
        jobs.state(KEY)
    assert ended.value.exit_code is ExitCode.FAILED


def test_who_gets_no_answer_for_long_is_reported_so(monkeypatch: pytest.MonkeyPatch) -> None:
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


def staged(*datasets: DatasetSpec) -> Runtime:
    """The runtime of a stack with these datasets, as a member reads it."""
    about = {names.DATASETS_ANNOTATION: json.dumps({each.name: _staged(each) for each in datasets})}
    spec: Any = {"template": {"spec": {"replicatedJobs": []}}}
    return _read("torch-none", {"metadata": {"annotations": about}, "spec": spec})


def dataset(name: str, **more: Any) -> DatasetSpec:
    return DatasetSpec(name=name, source=f"s3://a/{name}/", digest=f"sha256:{'0' * 64}", size_gib=1, **more)


def test_datasets_that_are_not_staged_or_are_for_other_teams_are_refused_at_once() -> None:
    runtime = staged(
        dataset("pile"), dataset("mail", teams=("sales", "legal")), dataset("web", teams=("research",))
    )
    runtime.check_datasets(JOB.model_copy(update={"datasets": ("pile", "web")}))
    for named in ({"datasets": ("pile", "crawl", "mail")}, {"dataset": "mail", "datasets": ("crawl",)}):
        with pytest.raises(InputError) as refused:
            runtime.check_datasets(JOB.model_copy(update=named))
        assert [(each.path, each.got, each.allowed) for each in refused.value.problems] == [
            ("datasets", "crawl", "pile, web"),
            ("datasets", "mail, which team research may not read", "pile, web"),
        ]
    assert "ask for research among its `teams`" in refused.value.problems[1].fix


@pytest.mark.parametrize(
    ("known", "allowed"),
    [
        ((), "none: the stack stages no data"),
        ((dataset("mail", teams=("sales",)),), "none: all datasets are for other teams than research"),
    ],
)
def test_who_can_read_no_dataset_is_reported_why(known: tuple[DatasetSpec, ...], allowed: str) -> None:
    with pytest.raises(InputError) as refused:
        staged(*known).check_datasets(JOB.model_copy(update={"datasets": ("mail",)}))
    assert refused.value.problems[0].allowed == allowed
