# ruff: noqa: N802 -- methods are named by the protocol
"""gRPC service of our Pulumi provider: maps the engine's calls (check, diff, create, …) to handlers of
resource types, and constructs components.
"""

import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct

from engine.plugin_server import PluginServer
from engine.provider.components import COMPONENTS, REFUSED, Components
from engine.provider.operations import EngineLog, OperationThreads
from engine.provider.resource import Cancelled, HandlerProgress, Outputs, ResourceHandler, ResourceNotFound
from engine.provider.resource_types import RESOURCE_TYPES, load
from engine.provider.values import UNKNOWN, Properties, changes
from engine.stubs import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2
from infra.errors import TrainyardError

HERE = Path(__file__).parent
VERSION: str = json.loads((HERE / "pulumi-plugin.json").read_text())["version"]

T = TypeVar("T")


class ProviderService(provider_pb2_grpc.ResourceProviderServicer):
    """Serves the types of `resources`: type token → what returns the type, called on first use.

    Secrets are preserved (as whole properties); output values are not asked for, since dependencies are the
    engine's own affair.
    """

    def __init__(
        self,
        engine: str,
        operations: OperationThreads,
        resources: Mapping[str, Callable[[], ResourceHandler]],
        components: Components | None = None,
    ) -> None:
        self._operations = operations
        self._resources = resources
        self._components = components or Components()
        self._engine = engine
        self._log = EngineLog(engine) if engine else None

    def Handshake(
        self, request: provider_pb2.ProviderHandshakeRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        self._engine = request.engine_address
        self._log = EngineLog(request.engine_address)
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True)

    def GetPluginInfo(self, _request: Empty, _context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetSchema(
        self, _request: provider_pb2.GetSchemaRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        return provider_pb2.GetSchemaResponse(schema=(HERE / "schema.json").read_text())

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(
        self, _request: provider_pb2.DiffRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        return provider_pb2.DiffResponse(changes=provider_pb2.DiffResponse.DIFF_NONE)

    def Configure(
        self, _request: provider_pb2.ConfigureRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True)

    def Construct(
        self, request: provider_pb2.ConstructRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConstructResponse:
        if request.type not in COMPONENTS:
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT, f"{request.type} is not a component of this provider"
            )
        ended = self._components.construct(request.type, request.SerializeToString(), self._engine)
        if ended.code == REFUSED:
            status = status_pb2.Status.FromString(ended.answer)
            details = (("grpc-status-details-bin", ended.answer),)
            context.abort_with_status(_Status(grpc.StatusCode.INVALID_ARGUMENT, status.message, details))
        if ended.code:
            context.abort(
                grpc.StatusCode.UNKNOWN, f"ended with exit code {ended.code}:\n{ended.error_output}"
            )
        response: provider_pb2.ConstructResponse = provider_pb2.ConstructResponse.FromString(ended.answer)
        return response

    def Check(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        resource = self._resource(request.urn, context)
        news = Properties.decode(request.news)
        # What is unknown at preview is checked at the update, with everything known.
        failures = [] if news.unknown() else resource.check(news.values)
        return provider_pb2.CheckResponse(
            inputs=news.encode(resource.SECRETS),
            failures=[provider_pb2.CheckFailure(property=f.property, reason=f.reason) for f in failures],
        )

    def Diff(
        self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        resource = self._resource(request.urn, context)
        old = Properties.decode(request.old_inputs).values
        response = provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_NONE,
            stables=sorted(resource.OUTPUTS - resource.RENEWED),
            deleteBeforeReplace=True,
            hasDetailedDiff=True,
        )
        for change in changes(old, Properties.decode(request.news).values):
            name = change.path.split(".")[0].split("[")[0]
            if name in resource.INCIDENTAL:
                continue
            replaces = name in resource.REPLACES
            response.changes = provider_pb2.DiffResponse.DIFF_SOME
            response.detailedDiff[change.path].kind = (
                provider_pb2.PropertyDiff.UPDATE_REPLACE if replaces else provider_pb2.PropertyDiff.UPDATE
            )
            response.detailedDiff[change.path].inputDiff = True
            if name not in response.diffs:
                response.diffs.append(name)
            if replaces and name not in response.replaces:
                response.replaces.append(name)
        if due := resource.due(Properties.decode(request.olds).values):
            response.changes = provider_pb2.DiffResponse.DIFF_SOME
            response.detailedDiff[due].kind = provider_pb2.PropertyDiff.UPDATE
            response.diffs.append(due)
        return response

    def Create(
        self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CreateResponse:
        resource = self._resource(request.urn, context)
        inputs = Properties.decode(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(properties=_state(resource, inputs, {}))
        identity = resource.identify(inputs.values)
        try:
            outputs = self._run(request.urn, partial(resource.create, inputs.values))
        except Exception as error:
            recorded = inputs.encode(resource.SECRETS)
            context.abort_with_status(_half_done(identity, recorded, recorded, error))
        return provider_pb2.CreateResponse(
            id=identity,
            properties=_state(resource, inputs, outputs),
            refresh_before_update=resource.REFRESHES,
        )

    def Read(
        self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ReadResponse:
        resource = self._resource(request.urn, context)
        if not request.inputs.fields:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"{resource.TYPE} cannot be imported: create adopts")
        inputs = Properties.decode(request.inputs)
        outputs = Properties.decode(request.properties).values
        try:
            live = self._run(request.urn, partial(resource.read, inputs.values, outputs))
        except ResourceNotFound:
            return provider_pb2.ReadResponse()
        found = Properties(live.inputs, inputs.secrets)
        return provider_pb2.ReadResponse(
            id=request.id,
            inputs=found.encode(resource.SECRETS),
            properties=_state(resource, found, live.outputs),
            refresh_before_update=resource.REFRESHES,
        )

    def Update(
        self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext
    ) -> provider_pb2.UpdateResponse:
        resource = self._resource(request.urn, context)
        old, new = Properties.decode(request.old_inputs), Properties.decode(request.news)
        if request.preview:
            stored = Properties.decode(request.olds).values
            retained = {name: value for name, value in stored.items() if name not in resource.RENEWED}
            return provider_pb2.UpdateResponse(properties=_state(resource, new, retained))
        try:
            outputs = self._run(request.urn, partial(resource.update, old.values, new.values))
        except Exception as error:
            context.abort_with_status(_half_done(request.id, request.olds, request.old_inputs, error))
        return provider_pb2.UpdateResponse(
            properties=_state(resource, new, outputs), refresh_before_update=resource.REFRESHES
        )

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> Empty:
        resource = self._resource(request.urn, context)
        self._run(request.urn, partial(resource.delete, Properties.decode(request.old_inputs).values))
        return Empty()

    def Cancel(self, _request: Empty, _context: grpc.ServicerContext) -> Empty:
        self._operations.cancel()
        self._components.stop()
        return Empty()

    def _run(self, urn: str, operation: Callable[[HandlerProgress], T]) -> T:
        return self._operations.run(operation, self._log, urn)

    def _resource(self, urn: str, context: grpc.ServicerContext) -> ResourceHandler:
        """Find the type that a URN names (`urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME`)."""
        kind = urn.split("::")[2].rpartition("$")[2]
        if kind not in self._resources:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{kind} is not a resource type of this provider")
        return self._resources[kind]()


def _state(resource: ResourceHandler, inputs: Properties, outputs: Outputs) -> Struct:
    """Inputs and outputs as the engine stores them; an output that does not exist yet is unknown."""
    made = {name: outputs.get(name, UNKNOWN) for name in resource.OUTPUTS}
    return Properties({**inputs.values, **made}, inputs.secrets).encode(resource.SECRETS)


def _half_done(identity: str, properties: Struct, inputs: Struct, error: Exception) -> "_Status":
    """Make the engine record the resource, so that the next update repairs it and a destroy removes it."""
    reason = str(error) if isinstance(error, TrainyardError | Cancelled) else repr(error)
    details = AnyMessage()
    details.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=identity, properties=properties, inputs=inputs, reasons=[reason]
        )
    )
    code = grpc.StatusCode.UNKNOWN
    message = status_pb2.Status(code=code.value[0], message=reason, details=[details])
    return _Status(code, reason, (("grpc-status-details-bin", message.SerializeToString()),))


class _Status(grpc.Status):
    def __init__(self, code: grpc.StatusCode, details: str, trailing: tuple[tuple[str, bytes], ...]) -> None:
        self.code = code
        self.details = details
        self.trailing_metadata = trailing


def serve() -> None:
    """Serve the engine, whose address is the last argument."""
    operations, components = OperationThreads(), Components()

    def stop() -> None:
        operations.cancel()
        components.stop()

    plugin = PluginServer(on_stop=stop)
    engine = sys.argv[-1] if len(sys.argv) > 1 else ""
    resources = {token: partial(load, reference) for token, reference in RESOURCE_TYPES.items()}
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(
        ProviderService(engine, operations, resources, components), plugin.server
    )
    plugin.run()
