"""`trainyard run`: its message when it is interrupted, its checks before it submits, and `--rerun`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infra.clients.kubernetes import ApiError, NoAnswer
from infra.common import names
from infra.errors import ExitCode, InputError, InterruptedByUser, TrainyardError
from infra.platform.jobs.runtimes import _staged
from infra.stackfile import parse_job
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.source import SpecSource
from trainyard.jobs import submit as submitting
from trainyard.jobs.key import JobKey
from trainyard.jobs.runtimes import Runtime, StagedDataset, _read
from trainyard.jobs.submit import _check_same, _submit_ready, interruptible, submit_as_it_is, submit_job
from trainyard.source.options import RunRequest, Written

KEY = JobKey("research", "tune")
BODY = {"metadata": {"name": KEY.name, "namespace": KEY.namespace}}
RUNTIME = Runtime("torch-tcp", "training:2", (StagedDataset("pile", "pile/sha256-1", "sha256:1"),))
JOB = parse_job({"name": "tune", "team": "research", "runtime": "torch-tcp", "command": ["python", "a.py"]})


@dataclass
class KnownApi:
    """A fake of an API server, which has a job, has none, or raises an error."""

    job: dict[str, Any] | None = None
    error: BaseException | None = None

    def find(self, _path: str) -> dict[str, Any] | None:
        if self.error:
            raise self.error
        return self.job


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (KnownApi(), "No job was submitted"),
        (KnownApi({"spec": {}}), "tune continues; follow it again: trainyard logs -f tune"),
        (KnownApi(error=NoAnswer("reset")), "If tune was submitted (trainyard jobs), it continues"),
        (KnownApi(error=KeyboardInterrupt()), "If tune was submitted"),
    ],
    ids=["before", "after", "no connection", "pressed twice"],
)
def test_ctrl_c_reports_what_exists_at_any_moment(known: KnownApi, message: str) -> None:
    session: Any = SimpleNamespace(api=known)
    with pytest.raises(InterruptedByUser) as stopped, interruptible(session, KEY):
        raise KeyboardInterrupt
    assert stopped.value.exit_code is ExitCode.INTERRUPTED
    assert message in stopped.value.text


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ApiError(401, "Unauthorized"), "401: your credential has expired"),
        (NoAnswer("reset"), "no answer: reset"),
        (NoAnswer("Connection to remote host was lost."), "no answer: Connection"),
    ],
    ids=["expired", "reset", "in an exec"],
)
def test_what_ends_the_command_before_the_job_is_submitted_is_reported(
    error: Exception, message: str
) -> None:
    session: Any = SimpleNamespace(api=KnownApi())
    with pytest.raises(TrainyardError, match=message) as ended, interruptible(session, KEY):
        raise error
    assert ended.value.exit_code is ExitCode.FAILED
    assert "no job was submitted: then run the same command again" in str(ended.value)


def test_a_refusal_of_the_cluster_is_passed_on() -> None:
    session: Any = SimpleNamespace(api=KnownApi())
    with pytest.raises(ApiError), interruptible(session, KEY):
        raise ApiError(403, "Forbidden")


def test_a_train_job_without_a_trainer_is_followed_as_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """The API server omits a null."""
    nodes: list[int] = []
    monkeypatch.setattr("trainyard.jobs.follow.follow", lambda *words: nodes.append(words[-1]))
    session: Any = SimpleNamespace(api=SimpleNamespace(create=lambda *_: None))
    written = Written({**BODY, "spec": {"trainer": None}}, SpecSource("job.yaml", key="job.yaml"))
    submit_as_it_is(session, written, "", dry_run=False, detach=False)
    assert nodes == [1]


def test_code_is_sent_before_the_wait_for_data(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for step in ("await_data", "_upload", "submit"):
        monkeypatch.setattr(submitting, step, lambda *_, step=step: done.append(step))
    ready: Any = SimpleNamespace(
        pack="pack", packages="packs", replaces="", key=KEY, run="run-1", manifest=dict, job=JOB
    )
    _submit_ready(SimpleNamespace(), ready)  # type: ignore[arg-type]
    assert done == ["_upload", "_upload", "await_data", "submit"]


def test_a_folder_that_cannot_be_sent_is_refused_without_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.py", "id_rsa"):
        (tmp_path / name).write_text("x\n")
    no_cluster: Any = SimpleNamespace()
    request = RunRequest(words=JOB.command or ())
    with pytest.raises(InputError) as refused:
        submit_job(no_cluster, JOB, "research", request, dry_run=False, detach=True)
    assert [each.path for each in refused.value.problems] == ["id_rsa"]


def test_a_rerun_is_of_the_same_image_and_data() -> None:
    same = {"image": "training:2", "datasets": {"pile": "sha256:1"}}
    _check_same(same, JOB, RUNTIME)
    with pytest.raises(InputError) as refused:
        _check_same({"image": "training:1", "datasets": {"pile": "sha256:0", "gone": "x"}}, JOB, RUNTIME)
    assert [each.path for each in refused.value.problems] == ["image", "dataset pile", "dataset gone"]
    pinned = JOB.model_copy(update={"image": f"a@sha256:{'0' * 64}"})
    _check_same({"image": pinned.image}, pinned, RUNTIME)


def staged(*datasets: DatasetSpec) -> Runtime:
    """Make the runtime of a stack with these datasets, as a member reads it."""
    about = {names.DATASETS_ANNOTATION: json.dumps({each.name: _staged(each) for each in datasets})}
    spec: Any = {"template": {"spec": {"replicatedJobs": []}}}
    return _read("torch-tcp", {"metadata": {"annotations": about}, "spec": spec})


def dataset(name: str, **more: Any) -> DatasetSpec:
    about = {"name": name, "source": f"s3://a/{name}/", "digest": f"sha256:{'0' * 64}", "size": "1Gi"}
    return DatasetSpec.model_validate({**about, **more})


def test_datasets_that_are_not_staged_or_are_for_other_teams_are_refused_at_once() -> None:
    mail, web = dataset("mail", teams=("sales", "legal")), dataset("web", teams=("research",))
    runtime = staged(dataset("pile"), mail, web)
    runtime.check_datasets(JOB.model_copy(update={"datasets": ("pile", "web")}))
    with pytest.raises(InputError) as refused:
        runtime.check_datasets(JOB.model_copy(update={"datasets": ("pile", "crawl", "mail")}))
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
def test_a_job_without_readable_datasets_is_refused_with_the_reason(
    known: tuple[DatasetSpec, ...], allowed: str
) -> None:
    with pytest.raises(InputError) as refused:
        staged(*known).check_datasets(JOB.model_copy(update={"datasets": ("mail",)}))
    assert refused.value.problems[0].allowed == allowed
