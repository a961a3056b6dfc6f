"""Runs programs in pods of jobs, and connects to their ports; a refusal says who may enter which pods."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus

from infra.clients.kubernetes import ApiError, ApiServer, PodConnection, PortConnection, ProgramExit
from infra.clients.kubernetes.pods import PodContainer, run_program
from infra.errors import Problem, TrainyardError

CHUNK = 1 << 16
"""Maximum number of bytes that are sent at once."""


class Remote:
    """The way into pods. Each method raises TrainyardError where a pod cannot be entered, ApiError for a 401,
    and NoAnswer where the API server does not answer.
    """

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def run(self, pod: PodContainer, command: Sequence[str], seconds: float = 60) -> ProgramExit:
        """Run a program to its end."""
        with _entering(pod):
            return run_program(self._api, pod, command, seconds)

    def start(self, pod: PodContainer, command: Sequence[str], *, stdin: bool, tty: bool) -> PodConnection:
        """Return the connection to a program that has started."""
        with _entering(pod):
            return PodConnection.start(self._api, pod, command, stdin=stdin, tty=tty)

    def socket(self, pod: PodContainer, port: int) -> PortConnection:
        """Return a connection to a port of the pod."""
        with _entering(pod):
            return PortConnection(self._api, pod, port)


@contextmanager
def _entering(pod: PodContainer) -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        problem = Problem(
            path=f"pod {pod.name}",
            got=f"the API server refused access: {error.message}",
            allowed="a running pod of a job of your team",
            fix="see `trainyard jobs`; viewers of a team may not open a shell",
        )
        raise TrainyardError([problem]) from error
