"""A job's state, read from the objects of the operators, and how `Jobs` submits and deletes it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from infra.errors import TrainyardError
from infra.stackfile.job import JobSpec
from tests.trainyard.jobs.fake_api import FakeApi
from trainyard.jobs.key import JobKey
from trainyard.jobs.manifest import manifest
from trainyard.jobs.state import Jobs

JOB = JobSpec(name="digits", team="research", runtime="torch-tcp", nodes=2, args=("--config", "digits"))
KEY = JobKey("research", "digits")


def staging_jobs(*found: tuple[str, bool, bool]) -> Jobs:
    """Make a cluster's staging jobs from (namespace, succeeded, failed), the newest last."""
    namespaces = ("trainyard-storage", "team-research")
    lists: dict[str, list[Any]] = {f"/apis/batch/v1/namespaces/{name}/jobs": [] for name in namespaces}
    for index, (namespace, succeeded, failed) in enumerate(found):
        conditions = [{"type": "Failed", "status": "True"}] if failed else []
        job = {
            "metadata": {"name": f"dataset-pile-{index}", "creationTimestamp": f"2026-01-0{index + 1}"},
            "status": {**({"succeeded": 1} if succeeded else {}), "conditions": conditions},
        }
        lists[f"/apis/batch/v1/namespaces/{namespace}/jobs"].append(job)
    return Jobs(FakeApi(lists))  # type: ignore[arg-type]


def test_the_state_of_a_dataset_is_that_of_its_newest_job() -> None:
    shared = "trainyard-storage"
    assert staging_jobs().staging("pile", "research").phase == "unknown"
    assert staging_jobs((shared, False, False)).staging("pile", "research").phase == "under way"
    repeated = staging_jobs((shared, False, True), (shared, True, False))
    assert repeated.staging("pile", "research").phase == "staged"
    failed = staging_jobs(("team-research", False, True)).staging("pile", "research")
    assert (failed.phase, failed.job) == ("failed", "job/dataset-pile-0 -n team-research")


OF_TEAM = f"namespaces/{KEY.namespace}"
TRAIN_JOBS = f"/apis/trainer.kubeflow.org/v1alpha1/{OF_TEAM}/trainjobs"


def jobs(
    job: dict[str, Any] | None,
    workloads: list[dict[str, Any]] | None = None,
    nodes: tuple[str, ...] = (),
    *,
    output: str = "",
    hook_failed_in: str = "",
) -> Jobs:
    """Make the jobs of a cluster with this one, whose pods run and have a container that ended."""
    ended = [{"state": {"terminated": {"message": output}}}]
    pods = [
        {
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 300},
            "metadata": {"name": node, "uid": f"pod-on-{node}"},
            "status": {"phase": "Running", "containerStatuses": ended},
        }
        for node in nodes
    ]
    event = {"metadata": {"name": "e"}, "involvedObject": {"uid": hook_failed_in}}
    api = FakeApi(
        {
            TRAIN_JOBS: [job] if job else [],
            f"/apis/kueue.x-k8s.io/v1beta2/{OF_TEAM}/workloads": workloads or [],
            f"/api/v1/{OF_TEAM}/pods": pods,
            f"/api/v1/{OF_TEAM}/events": [event] if hook_failed_in else [],
        }
    )
    return Jobs(api)  # type: ignore[arg-type]


def trainjob(*conditions: tuple[str, str]) -> dict[str, Any]:
    listed = [{"type": kind, "status": "True", "message": message} for kind, message in conditions]
    return {**manifest(JOB, "run-001"), "status": {"conditions": listed}}


def workload(*, admitted: bool) -> dict[str, Any]:
    owner = {"kind": "TrainJob", "name": "digits"}
    conditions = [{"type": "QuotaReserved", "status": "False", "message": "no room in spot"}]
    status: dict[str, Any] = {"conditions": conditions}
    if admitted:
        conditions.append({"type": "Admitted", "status": "True"})
        status["admission"] = {"podSetAssignments": [{"flavors": {"nvidia.com/gpu": "spot"}}]}
    return {"metadata": {"ownerReferences": [owner]}, "status": status}


def test_a_job_without_admission_is_queued_with_the_queues_reason() -> None:
    state = jobs(trainjob(), [workload(admitted=False)]).state(KEY)
    assert (state.phase, state.reason) == ("queued", "no room in spot")


def test_a_job_runs_once_all_its_pods_do() -> None:
    assert jobs(trainjob(), [workload(admitted=True)], ("spot-0",)).state(KEY).phase == "admitted"
    state = jobs(trainjob(), [workload(admitted=True)], ("spot-1", "spot-0")).state(KEY)
    assert (state.phase, state.flavor, state.nodes) == ("running", "spot", ("spot-0", "spot-1"))


def test_an_end_is_reported_with_the_operators_message() -> None:
    state = jobs(trainjob(("Failed", "too many restarts"))).state(KEY)
    assert (state.phase, state.reason, state.ended) == ("failed", "too many restarts", True)


def test_an_end_is_reported_with_each_message_of_its_pods_once() -> None:
    failed = trainjob(("Failed", "jobset failed"))
    found = jobs(failed, nodes=("spot-0", "spot-1"), output="over TCP\n", hook_failed_in="pod-on-spot-0")
    assert found.state(KEY).reason == "jobset failed over TCP"


@pytest.mark.parametrize(("kind", "phase"), [("Failed", "failed"), ("Complete", "complete")])
def test_an_image_without_a_shell_is_reported_however_its_program_ended(kind: str, phase: str) -> None:
    found = jobs(trainjob((kind, "it ended")), nodes=("spot-0",), hook_failed_in="pod-on-spot-0").state(KEY)
    assert (found.phase, found.reason.startswith("it ended Its containers were killed")) == (phase, True)
    assert "/bin/sh" in found.reason
    assert "unchecked_runtimes" in found.reason
    others = jobs(trainjob((kind, "it ended")), nodes=("spot-0",), hook_failed_in="another-job").state(KEY)
    assert others.reason == "it ended"


def test_a_missing_job_names_the_next_step() -> None:
    with pytest.raises(TrainyardError, match=r"no such job in team-research.*\n.*\n.*trainyard jobs"):
        jobs(None).state(KEY)


def test_the_wait_for_a_deleted_job_covers_the_grace_of_its_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = iter(range(0, 1000, 10))
    clock = SimpleNamespace(monotonic=lambda: next(waited), sleep=lambda _: None)
    monkeypatch.setattr("trainyard.jobs.state.time", clock)
    stuck = jobs(trainjob(), nodes=("spot-0",))
    monkeypatch.setattr(FakeApi, "delete", lambda *_: True)  # a finalizer holds it
    with pytest.raises(TrainyardError, match="still exists 330 s after it was deleted"):
        stuck.delete_and_wait(KEY)
    assert next(waited) > 330


def test_a_newer_job_of_the_name_is_not_deleted() -> None:
    newer = trainjob()
    newer["metadata"]["uid"] = "of-a-colleague"
    api = jobs(newer)
    api.delete_and_wait(KEY, uid="mine")  # neither deleted nor waited for
    with pytest.raises(TrainyardError, match="has a job with that name"):
        api.submit(manifest(JOB, "run-002"))
