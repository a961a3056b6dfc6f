"""A fake of a program in a pod: the client's WebSocket connection, with the test at the API server's end."""

import json
import socket
from collections.abc import Callable

from websocket import ABNF

from infra.clients.kubernetes import PodConnection
from infra.clients.kubernetes.pods import STATUS, STDERR, STDOUT, _Socket

__all__ = ["STDERR", "STDOUT", "Program"]


class Program:
    """The API server's end of the connection: sends the program's output and its exit code."""

    def __init__(self) -> None:
        here, self._server = socket.socketpair()
        client = _Socket()
        client.sock, client.connected = here, True
        self.connection = PodConnection(client)

    def after_reading(self, channel: int, then: Callable[[], None]) -> None:
        """Call `then` as soon as the client has read this channel for the first time."""
        read = self.connection.read

        def read_then(asked: int) -> bytes:
            found = read(asked)
            if asked == channel:
                self.connection.read = read  # type: ignore[method-assign]
                then()
            return found

        self.connection.read = read_then  # type: ignore[method-assign, assignment]

    def writes(self, channel: int, data: bytes) -> None:
        frame = ABNF.create_frame(bytes([channel]) + data, ABNF.OPCODE_BINARY)
        self._server.sendall(frame.format())

    def answers_ping(self) -> None:
        self._server.sendall(ABNF.create_frame(b"", ABNF.OPCODE_PONG).format())

    def ends(self, code: int) -> None:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status = {"status": "Failure" if code else "Success", "details": {"causes": causes}}
        self.writes(STATUS, json.dumps(status).encode())
        self._server.sendall(ABNF.create_frame(b"", ABNF.OPCODE_CLOSE).format())

    def close(self) -> None:
        """Close the server's end, so that the client can send no reply."""
        self._server.close()
