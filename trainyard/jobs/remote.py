"""Runs a program in a pod of a job by the API server's exec, and opens a socket to a port of the pod."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import ws_client
from kubernetes.stream.ws_client import portforward_call, websocket_call
from websocket import (
    WebSocket,
    WebSocketBadStatusException,
    WebSocketConnectionClosedException,
    WebSocketException,
    WebSocketTimeoutException,
)

from infra.clients import plain
from infra.errors import Problem, TrainyardError
from trainyard.jobs.records import UNAUTHORIZED

ERROR_CHANNEL = 3
PING_SECONDS = 10.0
"""Seconds between two pings, which the API server answers; they also keep an idle connection open."""
PONG_SECONDS = 30.0
"""Seconds without any frame after a ping, until the connection counts as cut."""


class _ProbedWebSocket(WebSocket):
    """A WebSocket whose calls end where its peer is gone: the client's own has no timeout, and no probes."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401 -- the client's own
        super().__init__(**options, sockopt=plain.socket_options())
        self.settimeout(PONG_SECONDS)

    def recv_data_frame(self, control_frame: bool = False) -> Any:  # noqa: ANN401 -- the client's own
        try:
            return super().recv_data_frame(control_frame)
        except (OSError, WebSocketTimeoutException) as error:
            raise WebSocketConnectionClosedException(str(error)) from error


_client: Any = ws_client
_client.WebSocket = _ProbedWebSocket  # `create_websocket` passes no options of sockets on


class PodContainer(Protocol):
    """A container of a pod, by the names that the API server takes."""

    @property
    def name(self) -> str:
        """Name of the pod."""

    @property
    def namespace(self) -> str: ...

    @property
    def container(self) -> str: ...


@dataclass(frozen=True)
class ProgramExit:
    """Result of a program in a pod."""

    code: int
    output: str
    errors: str


class Remote:
    """The way into pods."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    def run(self, pod: PodContainer, command: Sequence[str], seconds: float = 60) -> ProgramExit:
        """Run a program to its end.

        Raises:
            TrainyardError: the pod cannot be entered.
            ApiException: the API server does not know the user (401).
        """
        connection = self.start(pod, command, stdin=False, tty=False)
        output, errors = b"", b""
        connection.run_forever(timeout=seconds)
        output += connection.read_channel(1)
        errors += connection.read_channel(2)
        try:
            code = exit_code(connection)
        except ConnectionError:  # or it has not ended in time
            code = 1
        return ProgramExit(code, _text(output), _text(errors))

    def start(self, pod: PodContainer, command: Sequence[str], *, stdin: bool, tty: bool) -> Any:  # noqa: ANN401
        """Return the connection to a program that has started, its channels as bytes.

        Its reads raise ConnectionError once the connection is cut.

        Raises:
            TrainyardError: the pod cannot be entered.
            ApiException: the API server does not know the user (401).
            ConnectionError: it does not answer.
        """
        channels = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
        given = {name: "true" for name, wanted in channels.items() if wanted}
        asked = {"container": pod.container, "command": list(command), **given}
        address = plain.url(self._api, _path(pod, "exec"), asked)
        try:
            opened = self._open(websocket_call, address, capture_all=False, binary=True)
            return with_pings(with_optional_close_reply(opened))
        except ApiException as error:
            raise _refusal(pod, error) from error

    def socket(self, pod: PodContainer, port: int) -> Any:  # noqa: ANN401 -- a socket of the client's own
        """Return a connection to a port of the pod, and the channel with the reason when it breaks off.

        Raises:
            TrainyardError: the pod cannot be entered.
            ApiException: the API server does not know the user (401).
        """
        address = plain.url(self._api, _path(pod, "portforward"), {"ports": port})
        try:
            return self._open(portforward_call, address, query_params=[("ports", str(port))])
        except ApiException as error:
            raise _refusal(pod, error) from error

    def _open(self, call: Any, address: str, **options: Any) -> Any:  # noqa: ANN401 -- the client's own
        headers = {name.lower(): value for name, value in plain.credentials(self._api).items()}
        try:
            return call(
                self._api.configuration, "GET", address, headers=headers, _preload_content=False, **options
            )
        except ApiException as error:
            if isinstance(error.__context__, KeyboardInterrupt):  # the client reports Ctrl-C as a refusal
                raise KeyboardInterrupt from None
            raise


def _path(pod: PodContainer, verb: str) -> str:
    return f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/{verb}"


def with_optional_close_reply(connection: Any) -> Any:  # noqa: ANN401 -- the client's own
    """Return the connection, whose reply to the server's close frame may fail.

    A client that is slow to read gets that frame, behind all output, when the server has closed already.
    """
    reply = connection.sock.send_close

    def send_close(*arguments: Any) -> None:  # noqa: ANN401
        with suppress(WebSocketConnectionClosedException, OSError):
            reply(*arguments)

    connection.sock.send_close = send_close
    return connection


def with_pings(connection: Any) -> Any:  # noqa: ANN401 -- the client's own
    """Return the connection, whose `update` raises ConnectionError where the server answers no ping.

    Its `heard` is the time of the last frame, and `ping` asks for another.
    """
    update, receive = connection.update, connection.sock.recv_data_frame
    connection.heard = pinged = time.monotonic()
    unanswered_since: float | None = None

    def recv_data_frame(*arguments: Any) -> Any:  # noqa: ANN401
        nonlocal unanswered_since
        found = receive(*arguments)
        connection.heard, unanswered_since = time.monotonic(), None
        return found

    def ping() -> None:
        nonlocal pinged, unanswered_since
        pinged = time.monotonic()
        unanswered_since = unanswered_since or pinged
        connection.sock.ping()

    def checked_update(timeout: float | None = 0) -> None:
        update(timeout=timeout)
        now = time.monotonic()
        if not connection.is_open():
            return
        if unanswered_since is not None and now > unanswered_since + PONG_SECONDS:
            connection.sock.shutdown()
            raise ConnectionError(f"no answer for {now - unanswered_since:.0f} s")
        if now > pinged + PING_SECONDS:
            ping()

    connection.sock.recv_data_frame, connection.update = recv_data_frame, checked_update
    connection.ping = ping
    return connection


def rounds(connection: Any) -> Iterator[bool]:  # noqa: ANN401 -- the client's own
    """Yield whether the program runs, for a round of reads each, and once more after its end.

    Each read of a channel takes in frames of all, and the last output comes with the end: whoever stops at
    the end has not read what came between two reads.
    """
    is_open = True
    while is_open:
        is_open = connection.is_open()
        yield is_open


def exit_code(connection: Any) -> int:  # noqa: ANN401 -- the client's own
    """Return the exit code of a program that has ended. Raises ConnectionError if its connection broke."""
    status = yaml.safe_load(_text(connection.read_channel(ERROR_CHANNEL)))
    if not status:
        raise ConnectionError("the connection broke off")
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or []
    codes = [each["message"] for each in causes if each.get("reason") == "ExitCode"]
    return int(codes[0]) if codes else 1


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _refusal(pod: PodContainer, error: ApiException) -> Exception:
    """Return the error of a failed handshake, whose cause the client hides: ApiException for a 401."""
    cause = error.__context__
    if getattr(cause, "status_code", None) == UNAUTHORIZED:
        return ApiException(status=UNAUTHORIZED, reason="Unauthorized")
    if isinstance(cause, OSError | WebSocketException) and not isinstance(cause, WebSocketBadStatusException):
        return ConnectionError(str(cause))
    return TrainyardError([_shut(pod, error)])


def _shut(pod: PodContainer, error: ApiException) -> Problem:
    reason = str(error.reason)
    try:
        reason = json.loads(error.body or "")["message"]
    except (TypeError, ValueError, KeyError):
        reason = reason.splitlines()[0]
    return Problem(
        path=f"pod {pod.name}",
        got=f"the API server refused access: {reason}",
        allowed="a running pod of a job of your team",
        fix="see `trainyard jobs`; viewers of a team may not open a shell",
    )
