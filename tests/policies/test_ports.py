"""An engine is reached at a port that an earlier one has used, as in tests that start many engines."""

import socket
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from tests.policies.engine import CHANNEL_OPTIONS


class Listener(engine_pb2_grpc.EngineServicer):
    """A fake engine that accepts programs' logs."""

    def Log(self, request: engine_pb2.LogRequest, context: object) -> empty_pb2.Empty:  # noqa: N802
        return empty_pb2.Empty()


def test_an_engine_is_reached_at_a_port_where_another_has_ended() -> None:
    line = engine_pb2.LogRequest(message="a line")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]

    def connect() -> engine_pb2_grpc.EngineStub:
        return engine_pb2_grpc.EngineStub(grpc.insecure_channel(f"127.0.0.1:{port}", CHANNEL_OPTIONS))

    ended = connect()
    with pytest.raises(grpc.RpcError):
        ended.Log(line)
    server = grpc.server(ThreadPoolExecutor(1))
    engine_pb2_grpc.add_EngineServicer_to_server(Listener(), server)
    assert server.add_insecure_port(f"127.0.0.1:{port}") == port
    server.start()
    try:
        connect().Log(line)
    finally:
        server.stop(grace=None)
