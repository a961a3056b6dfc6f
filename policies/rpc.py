"""gRPC server on a minimal HTTP/2 implementation: it answers the Pulumi engine's unary calls to the policy
pack on the loopback interface, one call at a time.

grpcio's server takes 0.3 ms of CPU time and eleven thread switches per call. The engine makes two calls per
resource and waits for each, which was most of the time that the pack added to a preview. A unary call needs
few parts of HTTP/2 (RFC 9113), so this server takes a fifth of grpcio's CPU time.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NoReturn, cast
from urllib.parse import quote

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hpack import Decoder, Encoder

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 0x1, 0x1, 0x4, 0x8, 0x20
INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 4, 5

DEFAULT_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1
LARGEST_FRAME = 2**24 - 1
FRAME_OF_ANY_PEER = 16_384
"""Frame size that every peer accepts; our responses need no larger frames."""
RENEW_WINDOW = 2**28
"""Number of received bytes after which the connection's window is opened again."""

PING_SECONDS = 1.0
"""Minimum time between two answers to pings. grpc-go measures the bandwidth by a ping after every
response, but never by two at once: answered once a second, it sends half the messages."""
LONGEST_DETAILS = 4_000
"""Maximum length of an error's text in characters: with escapes it must fit into one frame."""

# Encoded by hand after RFC 7541: `:status: 200` is entry 8 of the static table, `content-type` entry 31.
RESPONSE_HEADERS = b"\x88\x0f\x10\x10application/grpc"
TRAILERS_OK = b"\x00\x0bgrpc-status\x010"


class Status(IntEnum):
    """gRPC status codes of a call."""

    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    UNIMPLEMENTED = 12


class CallError(Exception):
    """A call that ends with a status other than OK."""

    def __init__(self, code: Status, details: str) -> None:
        super().__init__(details)
        self.code = code


class Call:
    """Context of a call for servicers: can end the call with an error."""

    def abort(self, code: Status, details: str) -> NoReturn:
        raise CallError(code, details)


Method = Callable[[Message, Call], Message]


class RpcServer:
    """Serves the unary methods of services."""

    def __init__(self) -> None:
        self._methods: dict[str, tuple[type[Message], Method]] = {}
        """Path of a call → message type of its request, and method that answers it."""
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def add(self, service: ServiceDescriptor, servicer: object) -> None:
        """Let the servicer's methods answer the calls of the same names; other calls are not served."""
        for method in service.methods:
            if (answers := getattr(servicer, method.name, None)) is not None:
                request = GetMessageClass(method.input_type)
                self._methods[f"/{service.full_name}/{method.name}"] = request, answers

    def serve(self) -> NoReturn:
        """Take connections until the process ends."""
        while True:
            connection, _ = self._listener.accept()
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def answer(self, path: str, request: bytes) -> bytes:
        """Call the method at `path`; raises `CallError` where there is none, or where it aborts."""
        if path not in self._methods:
            raise CallError(Status.UNIMPLEMENTED, f"no method {path}")
        kind, answers = self._methods[path]
        with self._lock:
            response: bytes = answers(kind.FromString(request), Call()).SerializeToString()
        return response

    def _converse(self, peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Http2Connection(self.answer)
        with peer:
            try:
                peer.sendall(connection.opening())
                peer.settimeout(PING_SECONDS)
                while (received := _received(peer)) != b"":
                    if answer := connection.receive(received or b"", time.monotonic()):
                        peer.sendall(answer)
            except (OSError, ProtocolError):
                return  # the engine has ended, and reports why, or the peer is not an engine


def _received(peer: socket.socket) -> bytes | None:
    """Return received bytes: empty after a hang-up, None after a silent interval."""
    try:
        return peer.recv(1 << 18)
    except TimeoutError:
        return None


class ProtocolError(Exception):
    """The peer does not speak HTTP/2."""


@dataclass
class _Stream:
    path: str
    request: bytearray = field(default_factory=bytearray)


@dataclass
class Http2Connection:
    """One HTTP/2 connection, without its socket: bytes in, bytes out."""

    answer: Callable[[str, bytes], bytes]
    _received: bytearray = field(default_factory=bytearray)
    _greeted: bool = False
    _streams: dict[int, _Stream] = field(default_factory=dict)
    _decoder: Decoder = field(default_factory=Decoder)
    _encoder: Encoder = field(default_factory=Encoder)
    _paths: dict[bytes, str] = field(default_factory=dict)
    """Header block → path of the call; valid while the decoder's table remains unchanged."""
    _block: bytearray = field(default_factory=bytearray)
    _window: int = DEFAULT_WINDOW
    _stream_window: int = DEFAULT_WINDOW
    """Initial flow-control window of the peer for each stream."""
    _windows: dict[int, int] = field(default_factory=dict)
    _waiting: deque[tuple[int, bytes]] = field(default_factory=deque)
    """Responses that the peer's windows do not permit yet."""
    _consumed: int = 0
    _pings: list[bytes] = field(default_factory=list)
    """Pings without an answer yet."""
    _answered: float = 0.0
    """Time of the last answer to a ping."""

    def opening(self) -> bytes:
        """The server's first frames: the largest windows and frames."""
        settings = struct.pack(">HIHI", INITIAL_WINDOW_SIZE, LARGEST_WINDOW, MAX_FRAME_SIZE, LARGEST_FRAME)
        return _frame(SETTINGS, 0, 0, settings) + _opened(LARGEST_WINDOW - DEFAULT_WINDOW)

    def receive(self, data: bytes, now: float = 0.0) -> bytes:
        """Take bytes of the peer at `now` (seconds) and return those for it; raises `ProtocolError`."""
        return self._frames(data) + self._pongs(now)

    def _pongs(self, now: float) -> bytes:
        if not self._pings or now - self._answered < PING_SECONDS:
            return b""
        pings, self._pings, self._answered = self._pings, [], now
        return b"".join(_frame(PING, ACK, 0, ping) for ping in pings)

    def _frames(self, data: bytes) -> bytes:
        self._received += data
        if not self._greeted:
            if len(self._received) < len(PREFACE):
                return b""
            if not self._received.startswith(PREFACE):
                raise ProtocolError("no HTTP/2 preface")
            del self._received[: len(PREFACE)]
            self._greeted = True
        out = bytearray()
        begin, available = 0, len(self._received)
        while available - begin >= 9:
            head = self._received[begin : begin + 9]
            end = begin + 9 + int.from_bytes(head[:3], "big")
            if end > available:
                break
            stream = int.from_bytes(head[5:], "big") & LARGEST_WINDOW
            out += self._frame(head[3], head[4], stream, bytes(self._received[begin + 9 : end]))
            begin = end
        del self._received[:begin]
        return bytes(out)

    def _frame(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        if kind == DATA:
            return self._data(flags, stream, payload)
        if kind in (HEADERS, CONTINUATION):
            return self._headers(kind, flags, stream, payload)
        if kind == WINDOW_UPDATE:
            return self._widened(stream, int.from_bytes(payload, "big"))
        if kind == SETTINGS and not flags & ACK:
            return self._settings(payload)
        if kind == PING and not flags & ACK:
            self._pings.append(payload)
        if kind == RST_STREAM:
            self._streams.pop(stream, None)
            self._waiting = deque(item for item in self._waiting if item[0] != stream)
        return b""

    def _headers(self, kind: int, flags: int, stream: int, payload: bytes) -> bytes:
        if kind == HEADERS:
            payload = _unpadded(flags, payload)
            self._block = bytearray(payload[5:] if flags & PRIORITY else payload)
        else:
            self._block += payload
        if flags & END_HEADERS:
            self._streams[stream] = _Stream(self._path(bytes(self._block)))
        return self._ended(stream) if flags & END_STREAM and kind == HEADERS else b""

    def _path(self, block: bytes) -> str:
        """The method that a header block names.

        After its first call a client names everything by index of a table that both keep. Such a block means
        the same until another kind of block has changed the table.
        """
        indexed = all(0x80 <= byte < 0xFF for byte in block)
        if indexed and block in self._paths:
            return self._paths[block]
        fields = dict(cast(list[tuple[str, str]], self._decoder.decode(block)))
        path = fields.get(":path", "")
        if indexed:
            self._paths[block] = path
        else:
            self._paths.clear()
        return path

    def _data(self, flags: int, stream: int, payload: bytes) -> bytes:
        self._consumed += len(payload)
        if stream in self._streams:
            self._streams[stream].request += _unpadded(flags, payload)
        renewed = b""
        if self._consumed > RENEW_WINDOW:
            renewed, self._consumed = _opened(self._consumed), 0
        return renewed + (self._ended(stream) if flags & END_STREAM else b"")

    def _ended(self, stream: int) -> bytes:
        """The request is whole: answer it."""
        call = self._streams.pop(stream, None)
        if call is None:
            return b""
        try:
            # One byte: whether the message is compressed (ours never are); four bytes: its length.
            message = self.answer(call.path, bytes(call.request[5:]))
        except CallError as error:
            return self._failed(stream, error.code, str(error))
        except Exception as error:  # as grpcio's server does; the engine then stops
            return self._failed(stream, Status.UNKNOWN, f"{type(error).__name__}: {error}")
        self._windows.setdefault(stream, self._stream_window)
        self._waiting.append((stream, b"\x00" + struct.pack(">I", len(message)) + message))
        return _frame(HEADERS, END_HEADERS, stream, RESPONSE_HEADERS) + self._flushed()

    def _failed(self, stream: int, code: Status, details: str) -> bytes:
        message = quote(details[:LONGEST_DETAILS], safe=" ")
        fields = [(":status", "200"), ("content-type", "application/grpc")]
        fields += [("grpc-status", str(code.value)), ("grpc-message", message)]
        return _frame(HEADERS, END_HEADERS | END_STREAM, stream, self._encoder.encode(fields))

    def _flushed(self) -> bytes:
        """Return the waiting responses that the peer's windows permit, in order."""
        out = bytearray()
        while self._waiting:
            stream, rest = self._waiting[0]
            room = min(self._window, self._windows[stream])
            while rest and room > 0:
                chunk = rest[: min(room, FRAME_OF_ANY_PEER)]
                out += _frame(DATA, 0, stream, chunk)
                rest = rest[len(chunk) :]
                room -= len(chunk)
                self._window -= len(chunk)
                self._windows[stream] -= len(chunk)
            if rest:
                self._waiting[0] = (stream, rest)
                break
            self._waiting.popleft()
            del self._windows[stream]
            out += _frame(HEADERS, END_HEADERS | END_STREAM, stream, TRAILERS_OK)
        return bytes(out)

    def _widened(self, stream: int, more: int) -> bytes:
        if stream == 0:
            self._window += more
        elif stream in self._streams or stream in self._windows:
            self._windows[stream] = self._windows.get(stream, self._stream_window) + more
        return self._flushed()

    def _settings(self, payload: bytes) -> bytes:
        for name, value in struct.iter_unpack(">HI", payload):
            if name == INITIAL_WINDOW_SIZE:
                change, self._stream_window = value - self._stream_window, value
                self._windows = {stream: window + change for stream, window in self._windows.items()}
        return _frame(SETTINGS, ACK, 0, b"") + self._flushed()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">BHBBI", len(payload) >> 16, len(payload) & 0xFFFF, kind, flags, stream) + payload


def _opened(size: int) -> bytes:
    return _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", size))


def _unpadded(flags: int, payload: bytes) -> bytes:
    return payload[1 : len(payload) - payload[0]] if flags & PADDED else payload
