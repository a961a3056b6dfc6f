"""Following a job retries when the connection breaks off, and ends when the credential expires."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from infra.clients.kubernetes import ApiError, NoAnswer
from infra.errors import ExitCode, TrainyardError
from trainyard.jobs import retrying_jobs
from trainyard.jobs.key import JobKey
from trainyard.jobs.retrying_jobs import RetryingJobs
from trainyard.jobs.state import Jobs, JobState

KEY = JobKey("research", "tune")


@dataclass
class ConsoleOutput:
    lines: list[str] = field(default_factory=list)

    def log(self, text: str) -> None:
        self.lines.append(text)


def retrying(
    monkeypatch: pytest.MonkeyPatch, *answers: JobState | Exception
) -> tuple[RetryingJobs, ConsoleOutput]:
    remaining = list(answers)

    def state(_self: Jobs, _key: JobKey) -> JobState:
        answer = remaining.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Jobs, "state", state)
    monkeypatch.setattr(retrying_jobs, "RETRY_SECONDS", 0)
    output = ConsoleOutput()
    session: Any = SimpleNamespace(api=None, progress=output)
    return RetryingJobs(session, KEY), output


def test_a_request_is_retried_after_the_connection_breaks_off(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (NoAnswer("reset"), ApiError(503, "no"), NoAnswer("gone"))
    jobs, output = retrying(monkeypatch, *broken, JobState("running"))
    assert jobs.state(KEY).phase == "running"
    assert output.lines == ["  queue  no answer from the cluster; the job continues; retrying"]


@pytest.mark.parametrize("status", [401, 403])
def test_an_expired_credential_ends_the_command_with_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    jobs, _ = retrying(monkeypatch, ApiError(status, "Unauthorized"))
    with pytest.raises(
        TrainyardError, match="tune continues; follow it again: trainyard logs -f tune"
    ) as ended:
        jobs.state(KEY)
    assert ended.value.exit_code is ExitCode.FAILED


def test_the_command_ends_after_a_long_time_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying_jobs, "GIVE_UP_SECONDS", -1)
    jobs, _ = retrying(monkeypatch, NoAnswer("reset"))
    with pytest.raises(TrainyardError, match="no answer: reset"):
        jobs.state(KEY)
