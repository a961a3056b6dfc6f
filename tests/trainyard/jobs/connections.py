"""A fake of a program in a pod: the client's WebSocket connection, with the test at the API server's end."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes.stream import ws_client
from websocket import ABNF, WebSocket

from trainyard.jobs.remote import with_optional_close_reply, with_pings

STDOUT, STDERR, STATUS = 1, 2, 3


class Program:
    """The API server's end of the connection: sends the program's output and its exit code."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        here, self._server = socket.socketpair()
        client = WebSocket()
        client.sock, client.connected = here, True
        client.handshake_response = SimpleNamespace(  # type: ignore[assignment]
            subprotocol="v5.channel.k8s.io", headers={}
        )
        patch.setattr(ws_client, "create_websocket", lambda *_: client)
        client_of: Any = ws_client.WSClient
        self.connection: Any = with_pings(
            with_optional_close_reply(client_of(None, "", {}, capture_all=False, binary=True))
        )

    def after_reading(self, channel: int, then: Callable[[], None]) -> None:
        """Call `then` as soon as the client has read this channel for the first time."""
        read = self.connection.read_channel

        def read_channel(asked: int) -> bytes:
            found: bytes = read(asked)
            if asked == channel:
                self.connection.read_channel = read
                then()
            return found

        self.connection.read_channel = read_channel

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
