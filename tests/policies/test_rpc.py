# ruff: noqa: N802 - methods are named by the protocol
"""The pack's gRPC server, called by the official gRPC client and by raw HTTP/2 frames."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import cast

import grpc
import pytest
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import analyzer_pb2, analyzer_pb2_grpc

from policies import rpc
from tests.processes import TIMEOUT_SECONDS


class Servicer:
    """A fake analyzer: the request's name has the number of diagnostics, or the failure to answer with."""

    def Analyze(
        self, request: analyzer_pb2.AnalyzeRequest, context: rpc.Call
    ) -> analyzer_pb2.AnalyzeResponse:
        if request.name == "abort":
            context.abort(rpc.Status.INVALID_ARGUMENT, "got ü;\nallowed: 100 %")
        if request.name == "break":
            raise ZeroDivisionError("broken")
        found = analyzer_pb2.AnalyzeDiagnostic(message=request.properties["text"])
        return analyzer_pb2.AnalyzeResponse(diagnostics=[found] * int(request.name))


@pytest.fixture(scope="module")
def port() -> int:
    server = rpc.RpcServer()
    server.add(analyzer_pb2.DESCRIPTOR.services_by_name["Analyzer"], Servicer())
    threading.Thread(target=server.serve, daemon=True).start()
    return server.port


@pytest.fixture
def client(port: int) -> Iterator[analyzer_pb2_grpc.AnalyzerStub]:
    options = [("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
        yield analyzer_pb2_grpc.AnalyzerStub(channel)


def request(name: str, text: str = "") -> analyzer_pb2.AnalyzeRequest:
    properties = struct_pb2.Struct()
    properties.update({"text": text})
    return analyzer_pb2.AnalyzeRequest(name=name, properties=properties)


def test_calls_are_answered_one_after_another(client: analyzer_pb2_grpc.AnalyzerStub) -> None:
    for index in range(200):
        response = client.Analyze(request("1", f"text {index}"))
        assert [found.message for found in response.diagnostics] == [f"text {index}"]


def test_messages_larger_than_flow_control_windows_pass_both_ways(
    client: analyzer_pb2_grpc.AnalyzerStub,
) -> None:
    text = "abcdefgh" * 100_000
    response = client.Analyze(request("5", text))
    assert [found.message == text for found in response.diagnostics] == [True] * 5


def test_concurrent_calls_do_not_mix(client: analyzer_pb2_grpc.AnalyzerStub) -> None:
    texts = [str(index) * 20_000 for index in range(40)]
    with ThreadPoolExecutor(8) as pool:
        responses = pool.map(lambda text: client.Analyze(request("2", text)), texts)
        assert [response.diagnostics[1].message for response in responses] == texts


def test_a_call_that_is_refused_has_a_reason_and_the_next_is_answered(
    client: analyzer_pb2_grpc.AnalyzerStub,
) -> None:
    expected = {
        "abort": (grpc.StatusCode.INVALID_ARGUMENT, "got ü;\nallowed: 100 %"),
        "break": (grpc.StatusCode.UNKNOWN, "ZeroDivisionError: broken"),
    }
    for _ in range(3):
        for name, (code, details) in expected.items():
            with pytest.raises(grpc.RpcError) as raised:
                client.Analyze(request(name))
            error = cast(grpc.Call, raised.value)
            assert (error.code(), error.details()) == (code, details)
        assert len(client.Analyze(request("3")).diagnostics) == 3


def test_a_method_that_is_not_served_is_unimplemented(port: int) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/a.B/C", empty_pb2.Empty.SerializeToString, empty_pb2.Empty.FromString)
        with pytest.raises(grpc.RpcError) as raised:
            call(empty_pb2.Empty())
        assert cast(grpc.Call, raised.value).code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_connection_with_another_protocol_is_closed(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(ConnectionResetError):  # also closes the connection
            while peer.recv(4096):
                pass


def test_a_header_block_in_several_frames_is_joined() -> None:
    """The protocol allows it, although the engine's client does not send one."""
    seen: list[str] = []

    def answer(path: str, _request: bytes) -> bytes:
        seen.append(path)
        return b""

    connection = rpc.Http2Connection(answer)
    block = b"\x83\x86\x04\x06/a/bcd"
    frames = [
        rpc._frame(rpc.HEADERS, rpc.PADDED, 1, b"\x02" + block[:5] + b"\0\0"),
        rpc._frame(rpc.CONTINUATION, rpc.END_HEADERS, 1, block[5:]),
        rpc._frame(rpc.DATA, rpc.END_STREAM, 1, b"\0\0\0\0\0"),
    ]
    data = rpc.PREFACE + b"".join(frames)
    for index in range(len(data)):
        connection.receive(data[index : index + 1])
    assert seen == ["/a/bcd"]


def test_a_response_waits_for_the_peers_window() -> None:
    connection = rpc.Http2Connection(lambda _path, _request: b"x" * 100)
    opening = rpc.PREFACE + rpc._frame(rpc.SETTINGS, 0, 0, b"\x00\x04\x00\x00\x00\x0a")
    block = b"\x83\x86\x04\x02/a"
    call = rpc._frame(rpc.HEADERS, rpc.END_HEADERS, 1, block) + rpc._frame(rpc.DATA, 1, 1, b"\0" * 5)
    first = connection.receive(opening + call)
    assert first.endswith(rpc._frame(rpc.DATA, 0, 1, b"\0\0\0\0\x64" + b"x" * 5))
    rest = connection.receive(rpc._frame(rpc.WINDOW_UPDATE, 0, 1, (1000).to_bytes(4, "big")))
    assert rest == rpc._frame(rpc.DATA, 0, 1, b"x" * 95) + rpc._frame(rpc.HEADERS, 5, 1, rpc.TRAILERS_OK)


def test_all_pings_are_answered_at_most_once_a_second() -> None:
    connection = rpc.Http2Connection(lambda _path, _request: b"")
    ping, pong = (rpc._frame(rpc.PING, flags, 0, b"12345678") for flags in (0, rpc.ACK))
    assert connection.receive(rpc.PREFACE + ping, 100.0) == pong
    assert connection.receive(ping + ping, 100.4) == b""
    assert connection.receive(b"", 101.0) == pong * 2
    assert connection.receive(b"", 103.0) == b""


def test_the_ping_of_a_silent_peer_is_answered(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_SECONDS) as peer:
        ping = rpc._frame(rpc.PING, 0, 0, b"12345678")
        peer.sendall(rpc.PREFACE + ping + ping)
        received = b""
        while received.count(rpc._frame(rpc.PING, rpc.ACK, 0, b"12345678")) < 2:
            received += peer.recv(4096)
        peer.sendall(ping)
        while received.count(b"12345678") < 3:
            received += peer.recv(4096)
