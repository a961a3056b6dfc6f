"""Helpers for resource handlers that call a Kubernetes API server: errors for refusals, and a deadline for
waits.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from engine.provider.resource import HandlerProgress
from infra.clients.kubernetes import ApiError, NoAnswer
from infra.errors import Problem, TrainyardError

POLL_SECONDS = 0.3


def refused(got: str, allowed: str) -> TrainyardError:
    """Report the API server's answer and the expected one."""
    return TrainyardError([Problem("the cluster's API server", got, allowed, "see `trainyard status`")])


@contextmanager
def refusals(allowed: str, missing: str = "") -> Iterator[None]:
    """Report a refusal, or a missing answer, of the block's requests; `missing`: what a 404 means."""
    try:
        yield
    except ApiError as error:
        is_missing = missing and error.status == HTTPStatus.NOT_FOUND
        raise refused(missing if is_missing else error.message, allowed) from None
    except NoAnswer as error:
        raise refused(error.message, allowed) from None


class Deadline:
    """A wait in small steps, which an interrupt ends."""

    def __init__(self, seconds: float, late: str, allowed: str, progress: HandlerProgress) -> None:
        self._end = time.monotonic() + seconds
        self._late = f"{late} after {seconds:.0f} s"
        self._allowed = allowed
        self._progress = progress

    def wait(self, why: str = "") -> None:
        """Sleep for a moment. Raises TrainyardError when the time is over, Cancelled on an interrupt."""
        self._progress.check()
        if time.monotonic() > self._end:
            raise refused(f"{self._late}{f': {why}' if why else ''}", self._allowed)
        time.sleep(POLL_SECONDS)
