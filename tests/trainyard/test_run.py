"""`trainyard cancel`: its message on how to continue the job."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from infra.errors import InputError
from trainyard.jobs import RUN, JobKey, JobState
from trainyard.run import cancel_job, key_of


class KnownRun:
    """A fake of a cluster with one job, until it is deleted."""

    removed: JobKey | None = None

    def of_teams(self, _namespaces: list[str]) -> list[JobKey]:
        return [JobKey("research", "tune")]

    def state(self, _key: JobKey) -> JobState:
        return JobState("running")

    def get(self, _key: JobKey) -> dict[str, Any]:
        return {"metadata": {"annotations": {RUN: "run-7"}}}

    def delete(self, key: JobKey) -> None:
        self.removed = key


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
        jobs=KnownRun(),
        is_on_host=on_host,
        run_root=lambda team, name: Path("/data") / team / name,
        console=Console(file=output, width=200),
    )
    cancel_job(session, "tune")
    assert session.jobs.removed == JobKey("research", "tune")
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
    jobs = SimpleNamespace(of_teams=lambda _: known)
    session: Any = SimpleNamespace(team="", namespaces=[], jobs=jobs)
    with pytest.raises(InputError, match=r"research, speech have\n.*\n.*--team TEAM"):
        key_of(session, "tune")
    session.team = "speech"
    assert key_of(session, "tune") == JobKey("speech", "tune")
    session.team = "vision"
    with pytest.raises(InputError, match="there is none"):
        key_of(session, "tune")
