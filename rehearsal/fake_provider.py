# ruff: noqa: N802 - methods are named by the protocol
"""gRPC provider that replaces the real ones in a rehearsal: it forwards operations to a fake cloud, stores
the resources on disk, and injects faults.

The engine attaches to it by `PULUMI_DEBUG_PROVIDERS`, so that a program runs unchanged, with no plugin of the
cloud, no network and no credentials. Values that only a cloud could know remain unknown at preview.
"""

import json
import tempfile
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc, status_pb2

from rehearsal.cloud import Cloud, CreatedResource, RefusedError, RequestedResource, changed, replacing
from rehearsal.faults import Faults, HalfMadeError, InjectedError, Injector
from rehearsal.store import ResourceStore, StoredResource
from rehearsal.wire import UNKNOWN, plain

CHANNEL_OPTIONS = (("grpc.max_receive_message_length", 400 * 1024 * 1024),)
"""gRPC options with the engine's own message limit."""
WORKERS = 64
"""Number of threads: more than the engine's parallel calls, so that slow answers block no others."""


class FakeProvider(provider_pb2_grpc.ResourceProviderServicer):
    """Serves all given packages on one loopback port, and records creations."""

    def __init__(
        self,
        packages: Iterable[str],
        version: str = "",
        *,
        cloud: Cloud | None = None,
        folder: Path | None = None,
        injector: Injector | None = None,
    ) -> None:
        """Fake provider of `packages`, such as `aws` and `gcp`; `version` is the plugin's version.

        Existing resources are stored in `folder`.
        """
        self.packages = tuple(packages)
        self.version = version
        self.cloud = cloud or Cloud()
        self._temporary = None if folder else tempfile.TemporaryDirectory(prefix="fake-")
        self.store = ResourceStore(folder or Path(self._temporary.name if self._temporary else ""))
        self.created: list[str] = []
        """URNs in the order in which their creations ended."""
        self._injector = injector or Injector(Faults(), lambda: None)
        self._lock = threading.Lock()
        self._default_tags: dict[str, str] = {}
        self._server = grpc.server(ThreadPoolExecutor(max_workers=WORKERS), options=CHANNEL_OPTIONS)
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(self, self._server)
        self.port: int = self._server.add_insecure_port("127.0.0.1:0")

    def __enter__(self) -> "FakeProvider":
        self._server.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(grace=None).wait()
        if self._temporary:
            self._temporary.cleanup()

    @property
    def state(self) -> dict[str, struct_pb2.Struct]:
        """Id → properties of every resource that exists now."""
        return {stored.id: _struct(stored.outputs) for stored in self.store}

    def environment(self) -> dict[str, str]:
        """Environment by which the engine attaches to this server instead of starting plugins."""
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
        return _diff(plain(request.olds), plain(request.news), [])

    def Configure(
        self, request: provider_pb2.ConfigureRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        default = plain(request.args).get("defaultTags")
        tags = (json.loads(default) if isinstance(default, str) else default or {}).get("tags")
        if isinstance(tags, dict):
            self._default_tags = tags
        return provider_pb2.ConfigureResponse(acceptSecrets=True, supportsPreview=True, acceptResources=True)

    def Invoke(
        self, request: provider_pb2.InvokeRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.InvokeResponse:
        answer = self.cloud.answer(request.tok, plain(request.args))
        return provider_pb2.InvokeResponse(**{"return": _struct(answer)})

    def Check(
        self, request: provider_pb2.CheckRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        resource = self._resource(request.urn, request.news)
        inputs = struct_pb2.Struct()
        inputs.CopyFrom(request.news)
        field = self.cloud.autoname(resource.token)
        if field and field not in resource.inputs:
            made_up = f"{resource.name}-{uuid.uuid4().hex[:7]}"
            inputs.update({field: plain(request.olds).get(field) or made_up})
        named = self._resource(request.urn, inputs)
        failures = [
            # The path is part of the reason: for a property the engine would show the value, even a secret.
            provider_pb2.CheckFailure(reason=f"{path}: {reason}" if path else reason)
            for path, reason in self.cloud.check(named)
        ]
        return provider_pb2.CheckResponse(inputs=inputs, failures=failures)

    def Diff(
        self, request: provider_pb2.DiffRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        old = plain(request.old_inputs)
        resource = self._resource(request.urn, request.news)
        rules = self.cloud.replaces(resource.token)
        field = self.cloud.autoname(resource.token)
        return _diff(old, plain(request.news), rules, field)

    def Create(
        self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CreateResponse:
        resource = self._resource(request.urn, request.properties)
        if request.preview:
            inputs = _spelled(request.properties)
            computed = self.cloud.example_outputs(resource.token)
            within = {key: _unknown(value) for key, value in computed.items() if key in inputs}
            planned = _joined(self.cloud.planned_outputs(resource), _joined(inputs, within))
            return provider_pb2.CreateResponse(properties=_struct(planned))
        with _answered(context), self._injector.creating(resource):
            made, properties = self._make(request, resource)
            try:
                self._injector.after(resource)
            except HalfMadeError as error:
                _end_partly(context, made, properties, str(error))
        return provider_pb2.CreateResponse(id=made.id, properties=properties)

    def _make(
        self, request: provider_pb2.CreateRequest, resource: RequestedResource
    ) -> tuple[CreatedResource, struct_pb2.Struct]:
        made = self.cloud.create(resource)
        properties = _struct(_joined(made.outputs, _spelled(request.properties)))
        stored = StoredResource(request.urn, made.id, _spelled(request.properties), _spelled(properties))
        self.store.put(stored)
        with self._lock:
            self.created.append(request.urn)
        return made, properties

    def Update(
        self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext
    ) -> provider_pb2.UpdateResponse:
        token = _token(request.urn)
        stored = self.store.get(token, request.id)
        before = stored.outputs if stored else _spelled(request.olds)
        computed = _besides(before, stored.inputs if stored else {}, self.cloud.changing_outputs(token))
        planned = self.cloud.planned_outputs(self._resource(request.urn, request.news))
        properties = _joined(planned, _joined(_spelled(request.news), computed))
        if request.preview:
            return provider_pb2.UpdateResponse(properties=_struct(properties))
        old = self._resource(
            request.urn, _struct(stored.inputs if stored else {}), _struct(before), request.id
        )
        with _answered(context):
            self._injector.mending(self._resource(request.urn, request.news))
            outputs = self.cloud.update(old, plain(request.news))
        properties = _joined(outputs, properties)
        self.store.put(StoredResource(request.urn, request.id, _spelled(request.news), properties))
        return provider_pb2.UpdateResponse(properties=_struct(properties))

    def Read(
        self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ReadResponse:
        stored = self.store.get(_token(request.urn), request.id)
        if stored is None:
            return provider_pb2.ReadResponse()
        inputs, properties = _struct(stored.inputs), _struct(stored.outputs)
        with _answered(context):
            there = self.cloud.exists(self._resource(request.urn, inputs, properties, request.id))
        if not there:
            self.store.drop(stored.token, stored.id)
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(id=request.id, properties=properties, inputs=inputs)

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        token = _token(request.urn)
        stored = self.store.get(token, request.id)
        inputs = _struct(stored.inputs) if stored else request.old_inputs
        resource = self._resource(request.urn, inputs, request.properties, request.id)
        with _answered(context):
            self._injector.removing(resource)
            self.cloud.delete(resource)
        self.store.drop(token, request.id)
        return empty_pb2.Empty()

    def Cancel(self, _request: empty_pb2.Empty, _context: grpc.ServicerContext) -> empty_pb2.Empty:
        return empty_pb2.Empty()

    def _resource(
        self,
        urn: str,
        inputs: struct_pb2.Struct,
        outputs: struct_pb2.Struct | None = None,
        identity: str = "",
    ) -> RequestedResource:
        has = plain(outputs) if outputs is not None else {}
        return RequestedResource(
            _token(urn), urn.split("::", 3)[3], plain(inputs), has, identity, dict(self._default_tags)
        )


@contextmanager
def _answered(context: grpc.ServicerContext) -> Iterator[None]:
    """Answer with a cloud's refusal, or with an injected error."""
    try:
        yield
    except (RefusedError, InjectedError) as error:
        context.abort(grpc.StatusCode.UNKNOWN, str(error))


def _end_partly(
    context: grpc.ServicerContext, made: CreatedResource, properties: struct_pb2.Struct, reason: str
) -> NoReturn:
    """Answer that the resource exists but differs from its inputs: the next update continues with it."""
    failed = provider_pb2.ErrorResourceInitFailed(id=made.id, properties=properties, reasons=[reason])
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=reason)
    status.details.add().Pack(failed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, reason)


def _token(urn: str) -> str:
    """The type: the last of the URN's chain of parents."""
    return urn.split("::")[2].rpartition("$")[2]


def _besides(outputs: Mapping[str, Any], inputs: Mapping[str, Any], but: Iterable[str]) -> dict[str, Any]:
    """Return the outputs that are computed and no inputs, also within properties."""
    found = {key: value for key, value in outputs.items() if key not in inputs and key not in but}
    for key, value in inputs.items():
        within = _within(outputs.get(key), value)
        if within:
            found[key] = within
    return found


def _within(output: Any, given: Any) -> Any:
    """Return what an output has beyond the input of its name; nothing if their shapes differ."""
    if isinstance(output, Mapping) and isinstance(given, Mapping):
        return _besides(output, given, ())
    if isinstance(output, list) and isinstance(given, list) and len(output) == len(given):
        parts = [_within(*pair) for pair in zip(output, given, strict=True)]
        return parts if any(parts) else None
    return None


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Put properties together, within them too; what both have is the first's."""
    return {
        **second,
        **first,
        **{key: _both(first[key], second[key]) for key in first.keys() & second.keys()},
    }


def _both(first: Any, second: Any) -> Any:
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return _joined(first, second)
    if isinstance(first, list) and isinstance(second, list) and len(first) == len(second):
        return [_both(*pair) for pair in zip(first, second, strict=True)]
    return first


def _unknown(computed: Any) -> Any:
    """Return an unknown value for each computed output; an omitted one would count as absent."""
    if isinstance(computed, Mapping):
        return {key: _unknown(value) for key, value in computed.items()}
    return [_unknown(each) for each in computed] if isinstance(computed, list) else UNKNOWN


def _spelled(properties: struct_pb2.Struct) -> dict[str, Any]:
    spelled: dict[str, Any] = json_format.MessageToDict(properties)
    return spelled


def _struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(dict(values))
    return made


def _diff(
    old: Mapping[str, Any], new: Mapping[str, Any], rules: Iterable[str], name: str | None = None
) -> provider_pb2.DiffResponse:
    """Return what changed; a resource with a fixed name is deleted before its replacement takes that name."""
    diffs = changed(old, new)
    replaces = replacing(tuple(rules), old, new) if diffs else []
    taken = bool(replaces and name and old.get(name) == new.get(name))
    changes = provider_pb2.DiffResponse.DIFF_SOME if diffs else provider_pb2.DiffResponse.DIFF_NONE
    return provider_pb2.DiffResponse(
        changes=changes, diffs=diffs, replaces=replaces, deleteBeforeReplace=taken
    )
