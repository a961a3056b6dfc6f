"""Following a job over a connection that breaks off, by a credential that expires."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError

from infra.errors import ExitCode, TrainyardError
from trainyard.jobs import JobKey, Jobs, JobState
from trainyard.member import retrying_jobs
from trainyard.member.retrying_jobs import RetryingJobs

KEY = JobKey("research", "tune")


@dataclass
class ConsoleOutput:
    lines: list[str] = field(default_factory=list)

    def log(self, text: str) -> None:
        self.lines.append(text)


def retrying(
    monkeypatch: pytest.MonkeyPatch, *answers: JobState | Exception
) -> tuple[RetryingJobs, ConsoleOutput]:
    left = list(answers)

    def state(_self: Jobs, _key: JobKey) -> JobState:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Jobs, "state", state)
    monkeypatch.setattr(retrying_jobs, "RETRY_SECONDS", 0)
    output = ConsoleOutput()
    session: Any = SimpleNamespace(api=None, progress=output)
    return RetryingJobs(session, KEY), output


def test_a_connection_that_breaks_off_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (ProtocolError("reset"), ApiException(status=503), ConnectionError())
    jobs, output = retrying(monkeypatch, *broken, JobState("running"))
    assert jobs.state(KEY).phase == "running"
    assert output.lines == ["  queue  no answer of the cluster; the job goes on, asking again"]


@pytest.mark.parametrize("status", [401, 403])
def test_an_expired_credential_ends_the_command_with_how_to_continue(
    monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    jobs, _ = retrying(monkeypatch, ApiException(status=status, reason="Unauthorized"))
    with pytest.raises(
        TrainyardError, match="tune goes on; follow it again: trainyard logs -f tune"
    ) as ended:
        jobs.state(KEY)
    assert ended.value.exit_code is ExitCode.FAILED


def test_who_gets_no_answer_for_long_is_reported_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying_jobs, "GIVE_UP_SECONDS", -1)
    jobs, _ = retrying(monkeypatch, ProtocolError("reset"))
    with pytest.raises(TrainyardError, match="no answer: reset"):
        jobs.state(KEY)
