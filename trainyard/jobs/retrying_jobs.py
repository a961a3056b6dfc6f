"""Polls a job until it has ended, with retries: following it survives a lost connection of up to 10 minutes.
After that, or with an expired credential, the error names the command that follows the job again.
"""

import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from typing import Any, TypeVar

from infra.clients.kubernetes import ApiError, NoAnswer
from infra.errors import Problem, TrainyardError
from trainyard.jobs.key import JobKey
from trainyard.jobs.state import Jobs, JobState, Staging
from trainyard.stack.session import Session

RETRY_SECONDS = 5.0
GIVE_UP_SECONDS = 600.0
"""Seconds without an answer of the API server after which following ends; the job continues."""
_SERVER_ERROR, _TOO_MANY = 500, 429
NOT_SUBMITTED = "no job was submitted: then run the same command again"
"""What exists where the connection broke off before the submission, and what to do."""
Answer = TypeVar("Answer")


class RetryingJobs(Jobs):
    """The jobs of a cluster; while there is no answer, it is asked again.

    Its methods raise TrainyardError where there was none for `GIVE_UP_SECONDS`, or the user's credential has
    expired. The error says what exists: `submitted`: the job, with the command to follow it again.
    """

    def __init__(self, session: Session, key: JobKey, *, submitted: bool = True) -> None:
        super().__init__(session.api)
        self._log, self._key, self._submitted = session.progress.log, key, submitted

    def get(self, key: JobKey) -> dict[str, Any] | None:
        """As `Jobs.get`, with retries."""
        return self.with_retries(lambda: super(RetryingJobs, self).get(key))

    def state(self, key: JobKey) -> JobState:
        """As `Jobs.state`, with retries."""
        return self.with_retries(lambda: super(RetryingJobs, self).state(key))

    def staging(self, dataset: str, team: str) -> Staging:
        """As `Jobs.staging`, with retries."""
        return self.with_retries(lambda: super(RetryingJobs, self).staging(dataset, team))

    def annotate(self, key: JobKey, name: str, value: str) -> None:
        """As `Jobs.annotate`, with retries."""
        self.with_retries(lambda: super(RetryingJobs, self).annotate(key, name, value))

    def with_retries(self, ask: Callable[[], Answer]) -> Answer:
        """Return the answer to a request that may be made several times."""
        deadline, reported = time.monotonic() + GIVE_UP_SECONDS, False
        while True:
            try:
                return ask()
            except (NoAnswer, ApiError) as error:
                if not _passes(error) or time.monotonic() > deadline:
                    state = f"{self._key.name} continues; follow it again: {take_up(self._key)}"
                    problem = unanswered(error, state if self._submitted else NOT_SUBMITTED)
                    raise TrainyardError([problem]) from error
            if not reported:
                continues = " the job continues;" if self._submitted else ""
                self._log(f"  queue  no answer from the cluster;{continues} retrying")
                reported = True
            time.sleep(RETRY_SECONDS)


def states(jobs: Jobs, key: JobKey, seconds: float) -> Iterator[tuple[JobState, list[str]]]:
    """Yield a job's state from poll to poll until it has ended or cannot start.

    Each comes with what changed since the one before.

    Raises:
        NoSuchJobError: it was deleted.
    """
    now = JobState("queued")
    while True:
        before, now = now, jobs.state(key)
        yield now, list(_changes(before, now))
        if not now.goes_on:
            return
        time.sleep(seconds)


def _changes(before: JobState, now: JobState) -> Iterator[str]:
    """Report changes by the queue and the operators between two polls of a job."""
    if now.flavor and now.flavor != before.flavor:
        yield f"admitted to {now.flavor}"
    elif now.phase == "queued" and before.flavor:
        yield f"left {before.flavor}, waits again: {now.reason}"
    if now.flavor and now.reason and now.reason != before.reason:
        yield now.reason
    if now.phase == "running" and (now.phase, now.flavor) != (before.phase, before.flavor):
        yield f"pods run on {', '.join(now.nodes)}"


def _passes(error: ApiError | NoAnswer) -> bool:
    """Whether the next attempt may succeed after an error."""
    return isinstance(error, NoAnswer) or error.status >= _SERVER_ERROR or error.status == _TOO_MANY


def unanswered(error: ApiError | NoAnswer, state: str) -> Problem:
    """Return the Problem of a refusal or a missing answer; `state`: what exists, and what to do."""
    expired = isinstance(error, ApiError) and error.status == HTTPStatus.UNAUTHORIZED
    got = "401: your credential has expired or is not accepted" if expired else f"no answer: {error.message}"
    fix = f"{'sign in again' if expired else 'restore the connection'}; {state}"
    return Problem("the cluster's API", got.splitlines()[0], "an answer", fix)


def take_up(key: JobKey) -> str:
    """Return the command that follows a job again."""
    return f"trainyard logs -f {key.name}"
