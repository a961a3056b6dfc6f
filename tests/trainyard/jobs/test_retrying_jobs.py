"""Following a job ends when the credential expires, and after a long time without an answer."""

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


def retrying(monkeypatch: pytest.MonkeyPatch, error: Exception) -> RetryingJobs:
    def state(_self: Jobs, _key: JobKey) -> JobState:
        raise error

    monkeypatch.setattr(Jobs, "state", state)
    session: Any = SimpleNamespace(api=None, progress=SimpleNamespace(log=lambda _: None))
    return RetryingJobs(session, KEY)


@pytest.mark.parametrize("status", [401, 403])
def test_an_expired_credential_ends_the_command_with_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    jobs = retrying(monkeypatch, ApiError(status, "Unauthorized"))
    message = "tune continues; follow it again: trainyard logs -f tune"
    with pytest.raises(TrainyardError, match=message) as ended:
        jobs.state(KEY)
    assert ended.value.exit_code is ExitCode.FAILED


def test_the_command_ends_after_a_long_time_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying_jobs, "GIVE_UP_SECONDS", -1)
    jobs = retrying(monkeypatch, NoAnswer("reset"))
    with pytest.raises(TrainyardError, match="no answer: reset"):
        jobs.state(KEY)
