"""Runs a provider plugin for AWS's resources: the real pulumi-aws, if this host's engine has it.

It runs as the engine runs it, and reaches only moto's server. Without pulumi-aws, a fake in a separate
process replaces it, with the same start, protocol and requests.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2
from moto.server import ThreadedMotoServer
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2
from pulumi.runtime.proto.provider_pb2_grpc import ResourceProviderStub

from engine.paths import REPOSITORY
from rehearsal.cloud import CreatedResource, RequestedResource
from rehearsal.leaks import CREDENTIALS
from rehearsal.wire import plain

FAKE_PLUGIN = f"""\
#!{sys.executable}
import signal
import sys

sys.path.insert(0, "{REPOSITORY}")

from rehearsal.aws import models
from rehearsal.aws.account import MotoAccount
from rehearsal.fake_provider import FakeProvider

# The account's context is not entered, so moto's mocks are off, and every request reaches the server.
models.asks_a_server = True
with FakeProvider(["aws"], cloud=MotoAccount("us-east-2")) as fake_provider:
    print(fake_provider.port, flush=True)
    signal.pause()
"""


def home_of(environment: Mapping[str, str]) -> Path:
    """Return the engine's home, which has its plugins."""
    return Path(environment.get("PULUMI_HOME") or Path(environment["HOME"]) / ".pulumi")


def installed(home: Path) -> Path | None:
    """Return the program of the newest pulumi-aws in an engine's home that fits the SDK; None without one."""
    major = version("pulumi-aws").partition(".")[0]
    found = home.glob(f"plugins/resource-aws-v{major}.*/pulumi-resource-aws")
    return max(found, key=lambda program: _number(program.parent.name), default=None)


def _number(folder: str) -> tuple[int, ...]:
    return tuple(int(part) for part in folder.rpartition("-v")[2].split(".") if part.isdigit())


def put_fake_plugin(home: Path) -> Path:
    """Install the fake, as the engine installs a plugin."""
    program = home / "plugins" / f"resource-aws-v{version('pulumi-aws')}" / "pulumi-resource-aws"
    program.parent.mkdir(parents=True)
    program.write_text(FAKE_PLUGIN)
    program.chmod(0o755)
    return program


@contextmanager
def moto_server() -> Iterator[str]:
    """Serve moto on loopback; yields its address."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def environment_of(endpoint: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return a plugin's environment: all services of AWS at `endpoint`, and fake keys."""
    inherited = {key: value for key, value in environment.items() if not key.startswith("AWS_")}
    return {
        **inherited,
        **CREDENTIALS,
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


CONFIGURATION = {"region": "us-east-2", "s3UsePathStyle": "true", "skipMetadataApiCheck": "true"}
"""Configuration of the provider: buckets by path, since the server has one host name."""


class RunningPlugin:
    """A running plugin, with the engine's requests."""

    def __init__(self, stub: ResourceProviderStub) -> None:
        self._stub = stub
        given = _struct(CONFIGURATION)
        checked = stub.CheckConfig(
            provider_pb2.CheckRequest(urn=_urn("pulumi:providers:aws", "aws"), news=given)
        )
        assert not checked.failures, checked.failures
        variables = {f"aws:config:{key}": value for key, value in CONFIGURATION.items()}
        stub.Configure(
            provider_pb2.ConfigureRequest(args=checked.inputs, variables=variables, acceptSecrets=False)
        )

    def create(self, resource: RequestedResource) -> CreatedResource:
        urn = _urn(resource.token, resource.name)
        asked = provider_pb2.CheckRequest(urn=urn, news=_struct(resource.inputs), randomSeed=bytes(32))
        checked = self._stub.Check(asked)
        assert not checked.failures, checked.failures
        made = self._stub.Create(provider_pb2.CreateRequest(urn=urn, properties=checked.inputs))
        return CreatedResource(made.id, plain(made.properties))

    def exists(self, resource: RequestedResource) -> bool:
        urn = _urn(resource.token, resource.name)
        request = provider_pb2.ReadRequest(id=resource.id, urn=urn, properties=_struct(resource.outputs))
        return bool(self._stub.Read(request).id)

    def delete(self, resource: RequestedResource) -> None:
        urn = _urn(resource.token, resource.name)
        request = provider_pb2.DeleteRequest(id=resource.id, urn=urn, properties=_struct(resource.outputs))
        self._stub.Delete(request)


class LoggingEngine(engine_pb2_grpc.EngineServicer):
    """The engine's service to which a plugin logs."""

    def Log(self, _request: engine_pb2.LogRequest, _context: grpc.ServicerContext) -> empty_pb2.Empty:  # noqa: N802 -- the protocol's name
        return empty_pb2.Empty()


@contextmanager
def _engine() -> Iterator[str]:
    server = grpc.server(ThreadPoolExecutor())
    engine_pb2_grpc.add_EngineServicer_to_server(LoggingEngine(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


@contextmanager
def running(program: Path, environment: Mapping[str, str]) -> Iterator[RunningPlugin]:
    """Run a plugin's program, which prints its port first."""
    with ExitStack() as stack:
        started = [str(program), stack.enter_context(_engine())]
        process = subprocess.Popen(started, env=environment, stdout=subprocess.PIPE, text=True)
        stack.callback(process.communicate)
        stack.callback(process.terminate)
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        channel = stack.enter_context(grpc.insecure_channel(f"127.0.0.1:{port}"))
        yield RunningPlugin(ResourceProviderStub(channel))


def _urn(token: str, name: str) -> str:
    return f"urn:pulumi:s::p::{token}::{name}"


def _struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(json.loads(json.dumps(values)))
    return made
