"""`trainyard job queue`: positions, reasons and estimated starts, from the objects that a member may read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from infra.clients.kubernetes import ApiError, Object
from infra.clients.kubernetes.api import Query
from infra.stackfile.offer import PoolOffer
from tests.trainyard.jobs.lists import NAMESPACE, admitted, cluster_queue, condition, research, workload
from trainyard.jobs.key import FLAVORS
from trainyard.jobs.listing import rows
from trainyard.jobs.queue import Queue, queues, shown

NOW = datetime(2026, 11, 24, 0, 10, tzinfo=UTC)
EXCLUDED = "the job's node selector or affinity excludes it"
WAITS = condition("QuotaReserved", status="False", message="insufficient unused quota")


@dataclass
class Visibility:
    """A fake of Kueue's visibility API, which has the order of a queue; without items, access is refused."""

    records: list[dict[str, Any]] | None = None

    def items(self, path: str, query: Query) -> list[dict[str, Any]]:
        assert path.startswith(f"/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/localqueues/")
        assert int(str(query["limit"])) <= 1000
        if self.records is None:
            raise ApiError(403, "Forbidden")
        return self.records


def queue_of(
    *records: Object, queue: Object | None = None, items: list[dict[str, Any]] | None = None
) -> Queue:
    cluster = research(*records, queue=queue)
    cluster.api = Visibility(items)
    [found] = queues(cluster, rows(cluster), NOW)
    return found


def test_a_waiting_job_has_its_reason_and_the_jobs_ahead_of_it() -> None:
    early = workload("early", WAITS, created="2026-11-24T00:01:00Z")
    urgent = workload("urgent", WAITS, created="2026-11-24T00:05:00Z", priority=10000)
    late = workload("late", WAITS, created="2026-11-24T00:02:00Z")
    found = queue_of(early, urgent, late, queue=cluster_queue(used=8, pending=5))
    assert [(each.job, each.before) for each in found.waiting] == [
        ("urgent", ()),
        ("early", ("urgent",)),
        ("late", ("urgent", "early")),
    ]
    assert {each.reason for each in found.waiting} == {"insufficient unused quota"}
    assert found.waiting[0].others_before is None, "the order is not visible"
    assert found.others_waiting == 2


def test_where_the_order_is_visible_other_teams_jobs_ahead_are_counted() -> None:
    items = [{"metadata": {"name": "trainjob-late"}, "positionInClusterQueue": 3, "positionInLocalQueue": 1}]
    early = workload("early", WAITS, created="2026-11-24T00:01:00Z")
    late = workload("late", WAITS, created="2026-11-24T00:02:00Z")
    found = queue_of(early, late, queue=cluster_queue(used=8), items=items)
    assert [each.others_before for each in found.waiting] == [None, 2]


def test_an_evicted_job_waits_since_its_eviction() -> None:
    evicted = workload("evicted", WAITS, condition("Evicted", "2026-11-24T00:08:00Z"))
    other = workload("other", WAITS, created="2026-11-24T00:07:00Z")
    found = queue_of(evicted, other, queue=cluster_queue())
    assert [each.job for each in found.waiting] == ["other", "evicted"]


def test_a_paused_job_is_not_waiting() -> None:
    assert queue_of(workload("paused", WAITS, active=False), queue=cluster_queue()).waiting == ()


def test_the_start_is_bounded_by_the_time_limits_of_running_jobs() -> None:
    runs = workload("runs", *admitted("2026-11-24T00:00:00Z"), gpus=8, maximumExecutionTimeSeconds=1800)
    found = queue_of(runs, workload("waits", WAITS), queue=cluster_queue(used=8))
    [start] = [each.start for each in found.waiting]
    assert start.earliest == NOW
    assert start.latest == datetime(2026, 11, 24, 0, 30, tzinfo=UTC)
    assert start.basis.startswith("1 running jobs of yours, 1 with a time limit")


def test_the_start_is_unknown_while_other_teams_have_the_quota() -> None:
    found = queue_of(workload("waits", WAITS), queue=cluster_queue(used=8))
    [start] = [each.start for each in found.waiting]
    assert (start.earliest, start.latest) == (NOW, None)
    assert "8 GPUs of other teams" in start.basis


def test_a_job_larger_than_every_pool_never_starts() -> None:
    found = queue_of(workload("huge", WAITS, gpus=9), queue=cluster_queue())
    [start] = [each.start for each in found.waiting]
    assert start.earliest is None
    reason = "spot: it has 8 GPUs, the job asks for 9"
    assert start.basis == f"no pool of this queue can ever take the job: {reason}"


def spot() -> Object:
    """Make the flavor of the pool `spot`, whose nodes have one GPU each."""
    offer = PoolOffer("h100", 1, "tcp", "spot", 4.0, 16.0, "onprem", "")
    about = {"name": "spot", "annotations": {"trainyard.dev/offer": offer.as_text()}}
    return {"metadata": about, "spec": {"nodeLabels": {"trainyard.dev/pool": "spot"}}}


def waiting_with(pod: dict[str, Any]) -> list[Queue]:
    """Return the queues of a team whose job waits behind no other: its two pods have these settings."""
    record: Any = workload("waits", WAITS)
    record["spec"]["podSets"][0]["template"]["spec"] |= pod
    cluster = research(record, queue=cluster_queue(quota=32))
    cluster.found = {**cluster.found, FLAVORS: [spot()]}
    cluster.api = Visibility()
    return queues(cluster, rows(cluster), NOW)


def asks(gpus: int, kind: str = "nvidia.com/gpu") -> dict[str, Any]:
    limits = {"limits": {kind: str(gpus)}}
    return {"containers": [{"name": "node", "resources": limits}]}


def affinity(operator: str, *values: str) -> dict[str, Any]:
    match = {"key": "trainyard.dev/pool", "operator": operator, "values": list(values)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (asks(8), "its nodes have 1 GPUs, a pod asks for 8"),
        (asks(1, "amd.com/gpu"), "it has nvidia.com/gpu, the job asks for amd.com/gpu"),
        ({"nodeSelector": {"trainyard.dev/pool": "other"}}, EXCLUDED),
        *((affinity(*words), EXCLUDED) for words in (("In", "a", "b"), ("NotIn", "spot"), ("DoesNotExist",))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_job_that_no_flavor_can_ever_take_never_starts(pod: dict[str, Any], reason: str) -> None:
    """Kueue lets it wait, though the quota is free."""
    [found] = waiting_with(pod)
    [start] = [each.start for each in found.waiting]
    basis = f"no pool of this queue can ever take the job: spot: {reason}"
    assert (shown(start), start.latest, start.basis) == ("never", None, basis)


@pytest.mark.parametrize(
    "pod",
    [
        {"nodeSelector": {"trainyard.dev/pool": "spot", "kubernetes.io/arch": "arm64"}},
        *(affinity(*words) for words in (("In", "spot"), ("Exists",), ("NotIn", "other"))),
    ],
    ids=str,
)
def test_a_job_whose_selectors_match_the_flavor_may_start_now(pod: dict[str, Any]) -> None:
    """As in Kueue: keys that no flavor has are left to the scheduler."""
    [found] = waiting_with(pod)
    assert [shown(each.start) for each in found.waiting] == ["now to now"]


def test_a_job_that_can_never_start_does_not_delay_others() -> None:
    huge = workload("huge", WAITS, gpus=9, created="2026-11-24T00:01:00Z")
    small = workload("small", WAITS, gpus=2, created="2026-11-24T00:02:00Z")
    found = queue_of(huge, small, queue=cluster_queue())
    assert [shown(each.start) for each in found.waiting] == ["never", "now to now"]


def test_a_queue_that_is_not_visible_is_reported_as_such() -> None:
    found = queue_of(workload("waits", WAITS))
    assert (found.pools, found.others_waiting) == ((), None)
    [start] = [each.start for each in found.waiting]
    assert start.basis == "the quota of this queue is not visible to you"
    assert shown(start) == "now to unknown", "a job may start although its user cannot see where"


def test_quotas_and_usage_of_thousands_are_read_as_kubernetes_writes_them() -> None:
    queue = cluster_queue(quota="4k", used="1k")
    [pool] = queue_of(queue=queue).pools
    assert (pool.quota, pool.used, pool.free) == (4000, 1000, 3000)
