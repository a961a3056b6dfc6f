"""Following a job: each decision of its queue reported once, each scheduled interruption caused once."""

from __future__ import annotations

from typing import Any

from infra.stackfile.job import InterruptionSpec
from trainyard.jobs.follow import ScheduledPreemptions
from trainyard.jobs.key import PREEMPTIONS, JobKey
from trainyard.jobs.retrying_jobs import states
from trainyard.jobs.state import JobState

KEY = JobKey("research", "digits")


class FakeJobs:
    """A fake cluster that returns the states of a list in turn, and stores annotations."""

    def __init__(self, *states: JobState) -> None:
        self.states = list(states)
        self.annotations: dict[str, str] = {}

    def state(self, _: JobKey) -> JobState:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def get(self, _: JobKey) -> dict[str, Any]:
        return {"metadata": {"annotations": self.annotations}}

    def annotate(self, _: JobKey, name: str, value: str) -> None:
        self.annotations[name] = value


def test_admission_and_eviction_are_reported_once() -> None:
    stuck = JobState("admitted", "spot", "image a cannot be pulled: not found")
    spot, ended = JobState("running", "spot", "", ("spot-0", "spot-1")), JobState("complete")
    jobs: Any = FakeJobs(stuck, stuck, spot, spot, JobState("queued", reason="NodeFailures"), ended)
    assert [decisions for _, decisions in states(jobs, KEY, 0)] == [
        ["admitted to spot", "image a cannot be pulled: not found"],
        [],
        ["pods run on spot-0, spot-1"],
        [],
        ["left spot, waits again: NodeFailures"],
        [],
    ]


def test_each_interruption_is_caused_once_even_if_the_command_is_run_again() -> None:
    jobs = FakeJobs(JobState("running"))
    wanted = [InterruptionSpec(at_step=50), InterruptionSpec.model_validate({"at_step": 20, "notice": "0s"})]
    losses = ScheduledPreemptions(jobs, KEY, wanted)  # type: ignore[arg-type]
    assert losses.due(19) is None
    first = losses.due(20)
    assert first is not None
    assert first.notice_seconds == 0
    assert jobs.annotations == {PREEMPTIONS: "1"}
    again = ScheduledPreemptions(jobs, KEY, wanted)  # type: ignore[arg-type]
    assert again.due(49) is None
    assert again.due(50) == wanted[0]
    assert again.due(1000) is None
