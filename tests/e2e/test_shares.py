"""Fair sharing on the real Kueue (in `make soak`): two teams, weights 2 : 1, both want all accelerators."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.e2e.manifests import container, pod_spec
from tests.e2e.stack import Declaration, LocalStack
from tests.objects import thing

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

SEED = 20261124
JOBS = 60
"""Jobs of each team, all submitted at the start, alternately."""
WEIGHTS = {"research": 2, "platform": 1}
GPUS = 3
"""Accelerators, which can be shared exactly 2 : 1."""
POINTS = 5
LONGEST_WAIT = 60.0
"""Seconds from one admission of a team to its next, while its jobs take 2 to 8: a starved one has none."""


def fair_sharing(declaration: Declaration) -> None:
    """Edit: each team has a separate queue without a quota, and a third queue has all of the quota."""
    pools = {"spot": 2, "on-demand": 1}
    queues: list[dict[str, Any]] = [
        {"name": "idle", "flavors": [{"pool": pool, "quota": quota} for pool, quota in pools.items()]}
    ]
    queues += [
        {"name": team, "weight": weight, "flavors": [{"pool": pool, "quota": 0} for pool in pools]}
        for team, weight in WEIGHTS.items()
    ]
    declaration["queues"] = [{**queue, "cohort": "lab"} for queue in queues]
    declaration["teams"] = [team for team in declaration["teams"] if team["name"] in WEIGHTS]
    for team in declaration["teams"]:
        team["queue"] = team["name"]


@pytest.fixture
def contended(stack: LocalStack) -> Iterator[LocalStack]:
    with stack.declared(fair_sharing):
        stack.trainyard("up")
    yield stack
    for team in WEIGHTS:
        stack.kubectl("delete", "jobs", "--all", "-n", f"team-{team}", "--cascade=foreground")
    stack.trainyard("up")


@dataclass(frozen=True)
class AcceleratorUse:
    """The use of an accelerator by a team: its start and end, in seconds since the epoch."""

    team: str
    start: float
    end: float


def job(stack: LocalStack, team: str, number: int, seconds: float) -> Declaration:
    body = pod_spec(container(stack.training_image, ["sleep", f"{seconds:.1f}"], gpu=True))
    spec = {"suspend": True, "template": {"spec": {**body, "terminationGracePeriodSeconds": 1}}}
    labels = {"kueue.x-k8s.io/queue-name": team}
    return thing("batch/v1", "Job", f"trace-{number}", f"team-{team}", labels=labels, spec=spec)


def held(stack: LocalStack, team: str) -> list[AcceleratorUse]:
    """Return when each finished job of a team had its quota."""
    found = []
    for workload in stack.get("workloads.kueue.x-k8s.io", "-n", f"team-{team}")["items"]:
        times = {
            each["type"]: moment(each["lastTransitionTime"])
            for each in workload.get("status", {}).get("conditions", ())
            if each["status"] == "True"
        }
        if "Finished" in times and "Admitted" in times:
            found.append(AcceleratorUse(team, times["Admitted"], times["Finished"]))
    return sorted(found, key=lambda each: each.start)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def seconds_held(records: list[AcceleratorUse], start: float, end: float) -> float:
    return sum(max(0.0, min(each.end, end) - max(each.start, start)) for each in records)


def test_two_teams_that_want_all_share_it_by_their_weights_and_none_starves(contended: LocalStack) -> None:
    chance = random.Random(SEED)
    trace: list[Any] = [
        job(contended, team, number, chance.uniform(2, 8)) for number in range(JOBS) for team in WEIGHTS
    ]
    contended.apply(*trace)

    def finished() -> int:
        return sum(len(held(contended, team)) for team in WEIGHTS)

    done = 0
    while done < len(trace):  # slow machines take their time, and differ from one that stands still
        goal = min(len(trace), done + 5)
        contended.wait_until(lambda goal=goal: finished() >= goal, f"{goal} finished jobs (seed {SEED})")  # type: ignore[misc]
        done = finished()
    records = {team: held(contended, team) for team in WEIGHTS}
    # Both want more until the last job of one of them is admitted.
    start = max(each[0].start for each in records.values())
    end = min(each[-1].start for each in records.values())
    used = {team: seconds_held(each, start, end) for team, each in records.items()}
    share = 100 * used["research"] / sum(used.values())
    waits = [
        after.start - before.start
        for each in records.values()
        for before, after in pairwise(each)
        if after.start <= end
    ]
    figures = {"seconds": end - start, "share of research": round(share, 1), "longest wait": max(waits)}
    print(json.dumps(figures))
    assert abs(share - 100 * WEIGHTS["research"] / sum(WEIGHTS.values())) <= POINTS, figures
    assert max(waits) <= LONGEST_WAIT, figures
    assert sum(used.values()) >= 0.5 * GPUS * (end - start), figures
