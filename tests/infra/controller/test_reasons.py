"""Why pods do not run, from statuses and events as Kubernetes writes them, and which of it waiting heals."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.controller.reasons import reason_of
from tests.trainyard.jobs.lists import admitted, pod, research, train_job, workload
from trainyard.jobs.listing import rows
from trainyard.jobs.queue import queues
from trainyard.jobs.workloads import moment

Case = dict[str, Any]
CASES: list[Case] = yaml.safe_load(Path(__file__).with_name("reasons.yaml").read_text())
UID = "pod-of-the-case"


def pod_of(case: Case) -> Case:
    state = {"waiting": case.get("waiting"), "terminated": case.get("ended")}
    image = "registry.example.com/eval:v2"
    container = {"image": image, "state": state, "lastState": {"terminated": case.get("last")}}
    made: Any = pod("eval", 0, "spot-0", phase="Failed" if "ended" in case else "Pending")
    made["metadata"]["uid"] = UID
    made["spec"]["containers"][0]["image"] = image
    made["status"]["containerStatuses"] = [container] if {"waiting", "ended"} & case.keys() else []
    if "condition" in case:
        made["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", **case["condition"]}]
    return dict(made)


def events_of(case: Case) -> list[Case]:
    """The newest first, as a list of the API server may have them."""
    given = [(case.get("event"), "2026-11-28T08:01:00Z"), (case.get("before"), "2026-11-28T08:00:00Z")]
    others = {"reason": "FailedMount", "message": 'secret "of-others" not found', "lastTimestamp": "3"}
    of_pod = [{**each, "lastTimestamp": at, "involvedObject": {"uid": UID}} for each, at in given if each]
    return [{**others, "involvedObject": {"uid": "another"}}, *of_pod]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.get('kind')}: {case['source']}")
def test_each_reason_is_named_and_ended_only_where_waiting_does_not_heal_it(case: Case) -> None:
    found = reason_of([pod_of(case)], events_of(case))
    assert (found.kind if found else None) == case.get("kind")
    assert (found is None or found.heals) == case.get("heals", False)
    assert case.get("text", "") in str(found)
    if found is not None and not found.heals:
        assert found.next_step


def test_what_waiting_does_not_heal_comes_first_and_deleted_pods_count_no_more() -> None:
    sound, broken = (
        {"waiting": {"reason": "CreateContainerConfigError", "message": text}}
        for text in ("context deadline exceeded", 'secret "hub" not found')
    )
    pods = [pod_of({"ended": {"reason": "OOMKilled", "exitCode": 137}}), pod_of(sound), pod_of(broken)]
    assert (found := reason_of(pods, ())) and found.kind == "secret-missing"
    pods[2]["metadata"]["deletionTimestamp"] = "2026-11-28T08:00:00Z"
    assert (found := reason_of(pods, ())) and found.kind == "out-of-memory"


def test_jobs_and_queue_show_why_an_admitted_job_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster: Any = research(workload("eval", *admitted()), jobs=[train_job("eval")])
    case = {"event": {"reason": "FailedMount", "message": 'secret "hub" not found'}}
    cluster.running = [pod_of(case)]
    monkeypatch.setattr(cluster, "events", lambda _: events_of(case), raising=False)
    [row] = rows(cluster)
    assert (row.state, row.reason.partition(" in ")[0]) == ("admitted", "there is no Secret hub")
    [queue] = queues(cluster, [row], moment("2026-11-28T08:02:00Z"))
    assert queue.starting == (row,)
