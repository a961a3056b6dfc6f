"""Connections into pods: a program that the API server executes in a container, and a port of a pod."""

import select
import ssl
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml
from websocket import (
    ABNF,
    WebSocket,
    WebSocketBadStatusException,
    WebSocketConnectionClosedException,
    WebSocketException,
    WebSocketTimeoutException,
)

from infra.clients.kubernetes.access import ClusterAccess
from infra.clients.kubernetes.api import ApiError, ApiServer, NoAnswer, Query, socket_options, url

STDIN, STDOUT, STDERR, STATUS, RESIZE = range(5)
"""Channels of a program (kubernetes.io, `v4.channel.k8s.io`)."""
_CLOSE_CHANNEL = 255
"""Channel by which `v5.channel.k8s.io` ends another one."""
_PROTOCOLS = ["v5.channel.k8s.io", "v4.channel.k8s.io"]
PING_SECONDS = 10.0
"""Seconds between two pings, which the API server answers; they also keep an idle connection open."""
PONG_SECONDS = 30.0
"""Seconds without any frame after a ping, until the connection counts as cut."""


@dataclass(frozen=True)
class PodContainer:
    """A container of a pod, by the names that the API server takes."""

    name: str
    """Name of the pod."""
    namespace: str
    container: str


@dataclass(frozen=True)
class ProgramExit:
    """Result of a program in a pod."""

    code: int
    output: str
    errors: str


class _Socket(WebSocket):
    """A WebSocket whose calls end where its peer is gone, and whose reply to a close frame may fail.

    A client that is slow to read gets that frame, behind all output, when the server has closed already.
    """

    def recv_data_frame(self, control_frame: bool = False) -> Any:  # noqa: ANN401 -- the library's own
        try:
            return super().recv_data_frame(control_frame)
        except (OSError, WebSocketTimeoutException) as error:
            raise WebSocketConnectionClosedException(str(error)) from error

    def send_close(self, *arguments: Any) -> None:  # noqa: ANN401 -- the library's own
        with suppress(WebSocketConnectionClosedException, OSError):
            super().send_close(*arguments)


class PodConnection:
    """Channels of bytes to and from a program in a pod. Reads raise NoAnswer once the connection is cut."""

    def __init__(self, socket: Any) -> None:  # noqa: ANN401 -- the library's types are incomplete
        self._socket = socket
        self._came: defaultdict[int, bytes] = defaultdict(bytes)
        self.heard = self._pinged = time.monotonic()
        """`heard` is the time of the last frame."""
        self._unanswered_since: float | None = None

    @classmethod
    def start(
        cls,
        api: ApiServer,
        pod: PodContainer,
        command: Sequence[str],
        *,
        stdin: bool = False,
        tty: bool = False,
    ) -> "PodConnection":
        """Start a program in a container.

        Raises:
            ApiError: the pod cannot be entered.
            NoAnswer: the API server does not answer.
        """
        channels = {"stdin": stdin, "stdout": True, "stderr": not tty, "tty": tty}
        given = {name: "true" for name, wanted in channels.items() if wanted}
        query: Query = {"container": pod.container, "command": list(command), **given}
        return cls(_connect(api, pod, "exec", query))

    def fileno(self) -> int:
        """Return the descriptor by which `select` waits for frames."""
        return int(self._socket.sock.fileno())

    def is_open(self) -> bool:
        """Whether the program may still write."""
        return bool(self._socket.connected)

    def update(self, timeout: float = 0) -> None:
        """Take in the frames that are there, or the first one that comes in `timeout` seconds."""
        while self.is_open() and self._waits(timeout):
            timeout = 0
            self._take_frame()
        now = time.monotonic()
        if not self.is_open():
            return
        if self._unanswered_since is not None and now > self._unanswered_since + PONG_SECONDS:
            self._socket.shutdown()
            raise NoAnswer(f"no answer for {now - self._unanswered_since:.0f} s")
        if now > self._pinged + PING_SECONDS:
            self.ping()

    def read(self, channel: int) -> bytes:
        """Return what has come on a channel since the last read."""
        self.update()
        return self._came.pop(channel, b"")

    def write(self, channel: int, data: bytes) -> None:
        """Send bytes on a channel."""
        try:
            self._socket.send(bytes([channel]) + data, ABNF.OPCODE_BINARY)
        except (WebSocketException, OSError) as error:
            raise NoAnswer(f"the connection broke off: {error}") from error

    def close_channel(self, channel: int) -> None:
        """End a channel, such as the program's input; a server before Kubernetes 1.30 does not know that."""
        if self._socket.getsubprotocol() == _PROTOCOLS[0]:
            self.write(_CLOSE_CHANNEL, bytes([channel]))

    def ping(self) -> None:
        """Ask for a frame, whose time `heard` has."""
        self._pinged = time.monotonic()
        self._unanswered_since = self._unanswered_since or self._pinged
        try:
            self._socket.ping()
        except (WebSocketException, OSError) as error:
            raise NoAnswer(f"the connection broke off: {error}") from error

    def close(self) -> None:
        """End the connection, and with it the program's channels."""
        self._socket.close()

    def rounds(self) -> Iterator[bool]:
        """Yield whether the program runs, for a round of reads each, and once more after its end.

        The last output comes with the end: whoever stops at the end has not read what came between two reads.
        """
        is_open = True
        while is_open:
            is_open = self.is_open()
            yield is_open

    def exit_code(self) -> int:
        """Return the exit code of a program that has ended. Raises NoAnswer if its connection broke."""
        status = yaml.safe_load(self.read(STATUS).decode(errors="replace"))
        if not status:
            raise NoAnswer("the connection broke off")
        if status.get("status") == "Success":
            return 0
        causes = (status.get("details") or {}).get("causes") or []
        codes = [each["message"] for each in causes if each.get("reason") == "ExitCode"]
        return int(codes[0]) if codes else 1

    def _waits(self, timeout: float) -> bool:
        """Whether a frame, or a part of one, comes in time; TLS may hold one that `select` does not see."""
        inner = self._socket.sock
        if isinstance(inner, ssl.SSLSocket) and inner.pending():
            return True
        return bool(select.select([inner], (), (), timeout)[0])

    def _take_frame(self) -> None:
        try:
            opcode, frame = self._socket.recv_data_frame(control_frame=True)
        except WebSocketConnectionClosedException:  # `exit_code` then says whether the program had ended
            self._socket.shutdown()
            return
        self.heard, self._unanswered_since = time.monotonic(), None
        if opcode == ABNF.OPCODE_CLOSE:
            self._socket.shutdown()
        elif opcode in {ABNF.OPCODE_BINARY, ABNF.OPCODE_TEXT} and frame.data:
            self._came[frame.data[0]] += frame.data[1:]


class PortConnection:
    """A connection to a port of a pod, for one thread that reads and one that writes."""

    def __init__(self, api: ApiServer, pod: PodContainer, port: int) -> None:
        """Connect. Raises ApiError where the pod cannot be entered, NoAnswer as all requests do."""
        self._socket = _connect(api, pod, "portforward", {"ports": port})
        self._socket.settimeout(None)  # a connection may be idle: the kernel probes it
        self.error = ""
        """Why the pod's end refused or ended the connection."""

    def chunks(self) -> Iterator[bytes]:
        """Yield what the port sends, until it ends."""
        announced: set[int] = set()
        with suppress(WebSocketException, OSError, ValueError), closing(self._socket):
            while True:
                opcode, frame = self._socket.recv_data_frame(control_frame=True)
                if opcode == ABNF.OPCODE_CLOSE:
                    return
                if opcode != ABNF.OPCODE_BINARY or not frame.data:
                    continue
                channel, data = frame.data[0], frame.data[1:]
                if channel not in announced:  # the first frame of each channel has the port's number
                    announced.add(channel)
                elif channel == 0:
                    yield data
                else:
                    self.error += data.decode(errors="replace")
                    return

    def send(self, data: bytes) -> None:
        """Send bytes to the port. Raises OSError once the connection is over."""
        try:
            self._socket.send(b"\0" + data, ABNF.OPCODE_BINARY)
        except WebSocketException as error:
            raise NoAnswer(str(error)) from error

    def close(self) -> None:
        """End the connection, whichever thread waits for it."""
        with suppress(OSError, ValueError):
            self._socket.abort()


def run_program(
    api: ApiServer, pod: PodContainer, command: Sequence[str], seconds: float = 60
) -> ProgramExit:
    """Run a program in a pod to its end; one that does not end in time has the exit code 1.

    Raises as `PodConnection.start` does.
    """
    connection = PodConnection.start(api, pod, command)
    output, errors, deadline = b"", b"", time.monotonic() + seconds
    try:
        while connection.is_open() and time.monotonic() < deadline:
            connection.update(min(1.0, seconds))
            output += connection.read(STDOUT)
            errors += connection.read(STDERR)
        code = connection.exit_code()
    except NoAnswer:
        code = 1
    connection.close()
    output, errors = output + connection.read(STDOUT), errors + connection.read(STDERR)
    return ProgramExit(code, output.decode(errors="replace"), errors.decode(errors="replace"))


def _connect(api: ApiServer, pod: PodContainer, verb: str, query: Query) -> Any:  # noqa: ANN401
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/{verb}"
    tls, headers = api.access.now()
    socket: Any = _Socket(
        sockopt=socket_options(), sslopt={"context": tls, "server_hostname": api.access.server_name}
    )
    socket.settimeout(PONG_SECONDS)
    try:
        socket.connect(
            url(api.address, path, query).replace("http", "ws", 1),
            header=[f"{name}: {value}" for name, value in headers],
            subprotocols=_PROTOCOLS,
            **_through(api.access),
        )
    except WebSocketBadStatusException as error:
        raise ApiError.of(error.status_code, error.resp_body or b"", f"pod {pod.name}") from error
    except (WebSocketException, OSError) as error:
        raise NoAnswer(str(error)) from error
    return socket


def _through(access: ClusterAccess) -> dict[str, Any]:
    """Return the library's options for a proxy; with none, it is not to look for one itself."""
    if not access.proxy:
        return {"http_no_proxy": ["*"]}
    parts = urlsplit(access.proxy)
    kind = "http" if parts.scheme in {"http", "https"} else parts.scheme
    return {
        "http_proxy_host": parts.hostname,
        "http_proxy_port": parts.port or (443 if parts.scheme == "https" else 80),
        "http_proxy_auth": access.proxy_user or None,
        "proxy_type": kind,
    }
