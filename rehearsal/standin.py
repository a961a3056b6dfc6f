# ruff: noqa: N802 - methods are named by the protocol
"""A stand-in provider: it takes the place of any resource provider and accepts what it is given.

The engine attaches to it by `PULUMI_DEBUG_PROVIDERS`, so that a program runs unchanged, with no plugin of the
cloud, no network and no credentials. Outputs are the inputs, and what `outputs` says of the type; what only
a cloud could know stays unknown at preview.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType, TracebackType

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

CHANNEL_OPTIONS = (("grpc.max_receive_message_length", 400 * 1024 * 1024),)
"""The engine's own limit."""


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """Serves all given packages on one loopback port, and remembers what was really made."""

    def __init__(
        self,
        packages: Iterable[str],
        version: str = "",
        outputs: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    ) -> None:
        """Stand in for `packages`, such as `aws` and `gcp`; `version` is what the plugin says of itself.

        `outputs` are properties, by type, that the real provider would add to the inputs.
        """
        self.packages = tuple(packages)
        self._outputs = outputs
        self.version = version
        self.state: dict[str, struct_pb2.Struct] = {}
        """Id → properties of every resource that exists now."""
        self.created: list[str] = []
        """URNs in the order of their creation, previews left out."""
        self._lock = threading.Lock()
        self._server = grpc.server(ThreadPoolExecutor(max_workers=8), options=CHANNEL_OPTIONS)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(self, self._server)
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> StandIn:
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(grace=None).wait()

    def environment(self) -> dict[str, str]:
        """What the engine's environment needs to attach here instead of starting plugins."""
        attached = ",".join(f"{package}:{self.port}" for package in self.packages)
        return {"PULUMI_DEBUG_PROVIDERS": attached, "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true"}

    def Handshake(
        self, _request: provider_pb2.ProviderHandshakeRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True)

    def Attach(self, _request: plugin_pb2.PluginAttach, _context: grpc.ServicerContext) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def GetPluginInfo(
        self, _request: empty_pb2.Empty, _context: grpc.ServicerContext
    ) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=self.version)

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(
        self, request: provider_pb2.DiffRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        return _diff(request.olds, request.news)

    def Configure(
        self, _request: provider_pb2.ConfigureRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True, acceptResources=True)

    def Invoke(
        self, request: provider_pb2.InvokeRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.InvokeResponse:
        return provider_pb2.InvokeResponse(**{"return": request.args})

    def Check(
        self, request: provider_pb2.CheckRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Diff(
        self, request: provider_pb2.DiffRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        return _diff(request.old_inputs, request.news)

    def Create(
        self, request: provider_pb2.CreateRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CreateResponse:
        if request.preview:
            return provider_pb2.CreateResponse(properties=request.properties)
        identity = f"{request.urn.rpartition('::')[2]}-{uuid.uuid4().hex[:8]}"
        properties = self._with_outputs(request.urn, request.properties)
        with self._lock:
            self.state[identity] = properties
            self.created.append(request.urn)
        return provider_pb2.CreateResponse(id=identity, properties=properties)

    def Update(
        self, request: provider_pb2.UpdateRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.UpdateResponse:
        properties = self._with_outputs(request.urn, request.news)
        if not request.preview:
            with self._lock:
                self.state[request.id] = properties
        return provider_pb2.UpdateResponse(properties=properties)

    def Read(
        self, request: provider_pb2.ReadRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ReadResponse:
        with self._lock:
            properties = self.state.get(request.id)
        if properties is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(id=request.id, properties=properties, inputs=request.inputs)

    def Delete(self, request: provider_pb2.DeleteRequest, _context: grpc.ServicerContext) -> empty_pb2.Empty:
        with self._lock:
            self.state.pop(request.id, None)
        return empty_pb2.Empty()

    def _with_outputs(self, urn: str, inputs: struct_pb2.Struct) -> struct_pb2.Struct:
        """Add what the type's provider would; the type is the last of the URN's chain of parents."""
        properties = struct_pb2.Struct()
        properties.CopyFrom(inputs)
        properties.update(self._outputs.get(urn.split("::")[2].rpartition("$")[2], {}))
        return properties

    def Cancel(self, _request: empty_pb2.Empty, _context: grpc.ServicerContext) -> empty_pb2.Empty:
        return empty_pb2.Empty()


def _diff(old: struct_pb2.Struct, new: struct_pb2.Struct) -> provider_pb2.DiffResponse:
    changed = sorted(key for key in {*old.fields, *new.fields} if old.fields.get(key) != new.fields.get(key))
    changes = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
    return provider_pb2.DiffResponse(changes=changes, diffs=changed)
