"""The provider's gRPC service with a fake resource type, called as the engine calls it."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, ClassVar

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct

from engine.provider import operations
from engine.provider.components import COMPONENTS
from engine.provider.operations import OperationThreads
from engine.provider.resource import Failure, HandlerProgress, ReadResult, ResourceHandler, ResourceNotFound
from engine.provider.resource_types import RESOURCE_TYPES, load
from engine.provider.service import VERSION, ProviderService
from engine.provider.values import SECRET, SIGNATURE, UNKNOWN_MARK
from engine.stubs import engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2
from infra.errors import Problem, TrainyardError
from tests.processes import TIMEOUT_SECONDS
from tests.tables import table

URN = "urn:pulumi:dev::tiny::pkg:index:Parent$test:index:FakeResource::one"


class FakeResource(ResourceHandler):
    """A fake resource type that records its calls, and can be made to fail or to take long."""

    TYPE = "test:index:FakeResource"
    REPLACES: ClassVar[frozenset[str]] = frozenset({"socket"})
    OUTPUTS: ClassVar[frozenset[str]] = frozenset({"serial", "pin", "burns"})
    RENEWED: ClassVar[frozenset[str]] = frozenset({"burns"})
    SECRETS: ClassVar[frozenset[str]] = frozenset({"pin"})
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset({"manual"})
    REFRESHES = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.during: Callable[[HandlerProgress], None] = lambda progress: None
        self.live: ReadResult | None = None

    def check(self, inputs: Mapping[str, Any]) -> list[Failure]:
        return [] if inputs.get("watts", 0) < 100 else [Failure("watts", "at most 100")]

    def identify(self, inputs: Mapping[str, Any]) -> str:
        return f"lamp-{inputs['socket']}"

    def due(self, outputs: Mapping[str, Any]) -> str:
        return "burns" if outputs.get("burns") == 0 else ""

    def create(self, inputs: Mapping[str, Any], progress: HandlerProgress) -> Mapping[str, Any]:
        self.asked.append(("create", inputs))
        self.during(progress)
        return {"serial": "s1", "pin": "1234", "burns": 1000}

    def read(
        self, inputs: Mapping[str, Any], outputs: Mapping[str, Any], progress: HandlerProgress
    ) -> ReadResult:
        if self.live is None:
            raise ResourceNotFound
        return self.live

    def update(
        self, old: Mapping[str, Any], new: Mapping[str, Any], progress: HandlerProgress
    ) -> Mapping[str, Any]:
        self.asked.append(("update", (old, new)))
        self.during(progress)
        return {"serial": "s1", "pin": "1234", "burns": 1000}

    def delete(self, inputs: Mapping[str, Any], progress: HandlerProgress) -> None:
        self.asked.append(("delete", inputs))
        self.during(progress)


class FakeEngineService(engine_pb2_grpc.EngineServicer):
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, bool]] = []

    def Log(self, request: Any, context: Any) -> Empty:  # noqa: N802
        self.lines.append((request.urn, request.message, request.ephemeral))
        return Empty()


@dataclass
class ProviderBench:
    lamp: FakeResource
    engine: FakeEngineService
    provider: provider_pb2_grpc.ResourceProviderStub
    servers: list[grpc.Server] = field(default_factory=list)


@pytest.fixture
def bench() -> Iterator[ProviderBench]:
    lamp, engine = FakeResource(), FakeEngineService()
    engine_server, provider_server = grpc.server(ThreadPoolExecutor(4)), grpc.server(ThreadPoolExecutor(4))
    engine_pb2_grpc.add_EngineServicer_to_server(engine, engine_server)
    address = f"127.0.0.1:{engine_server.add_insecure_port('127.0.0.1:0')}"
    service = ProviderService(address, OperationThreads(), {lamp.TYPE: lambda: lamp})
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(service, provider_server)
    port = provider_server.add_insecure_port("127.0.0.1:0")
    for server in (engine_server, provider_server):
        server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield ProviderBench(lamp, engine, provider_pb2_grpc.ResourceProviderStub(channel))
    for server in (engine_server, provider_server):
        server.stop(0)


def properties(**values: Any) -> Struct:
    struct = Struct()
    struct.update(values)
    return struct


def create(**values: Any) -> provider_pb2.CreateRequest:
    return provider_pb2.CreateRequest(urn=URN, properties=properties(**values))


def update(
    olds: Struct, news: Struct, old_inputs: Struct, *, preview: bool = False
) -> provider_pb2.UpdateRequest:
    return provider_pb2.UpdateRequest(
        urn=URN, id="lamp-a", olds=olds, news=news, old_inputs=old_inputs, preview=preview
    )


def raising(error: Exception) -> Callable[[HandlerProgress], None]:
    def fail(_progress: HandlerProgress) -> None:
        raise error

    return fail


def secret(value: Any) -> dict[str, Any]:
    return {SIGNATURE: SECRET, "value": value}


def half_done(error: grpc.RpcError) -> provider_pb2.ErrorResourceInitFailed:
    trailing = {entry.key: entry.value for entry in error.trailing_metadata()}
    status = status_pb2.Status.FromString(trailing["grpc-status-details-bin"])
    found = provider_pb2.ErrorResourceInitFailed()
    assert status.details[0].Unpack(found)
    return found


def test_a_wrong_input_is_refused_with_its_property_and_the_reason(bench: ProviderBench) -> None:
    answer = bench.provider.Check(provider_pb2.CheckRequest(urn=URN, news=properties(watts=500)))
    assert [(f.property, f.reason) for f in answer.failures] == [("watts", "at most 100")]


def test_unknown_inputs_are_checked_later(bench: ProviderBench) -> None:
    news = properties(watts=500, socket=UNKNOWN_MARK)
    answer = bench.provider.Check(provider_pb2.CheckRequest(urn=URN, news=news))
    assert not answer.failures
    assert answer.inputs == news


def test_a_secret_input_is_secret_in_inputs_and_state(bench: ProviderBench) -> None:
    news = properties(socket="a", note=secret("mine"))
    checked = bench.provider.Check(provider_pb2.CheckRequest(urn=URN, news=news))
    made = bench.provider.Create(provider_pb2.CreateRequest(urn=URN, properties=checked.inputs))
    assert dict(checked.inputs["note"]) == secret("mine")
    assert dict(made.properties["note"]) == secret("mine")
    assert bench.lamp.asked == [("create", {"socket": "a", "note": "mine"})]


def test_a_property_with_a_secret_inside_is_secret_as_a_whole(bench: ProviderBench) -> None:
    made = bench.provider.Create(create(socket="a", notes=[secret("x"), "y"]))
    assert made.properties["notes"][SIGNATURE] == SECRET
    assert list(made.properties["notes"]["value"]) == ["x", "y"]


def test_an_output_that_the_type_declares_secret_is_secret(bench: ProviderBench) -> None:
    made = bench.provider.Create(create(socket="a"))
    assert dict(made.properties["pin"]) == secret("1234")
    assert made.properties["serial"] == "s1"
    assert made.id == "lamp-a"
    assert made.refresh_before_update


def test_a_preview_of_a_create_creates_nothing_and_has_unknown_outputs(bench: ProviderBench) -> None:
    request = provider_pb2.CreateRequest(urn=URN, properties=properties(socket="a"), preview=True)
    made = bench.provider.Create(request)
    assert (made.id, made.properties["serial"]) == ("", UNKNOWN_MARK)
    assert dict(made.properties["pin"]) == secret(UNKNOWN_MARK)
    assert bench.lamp.asked == []


def test_a_preview_of_an_update_keeps_the_outputs_known(bench: ProviderBench) -> None:
    olds = properties(socket="a", watts=1, serial="s1", pin=secret("1234"), burns=1000)
    old_inputs, news = properties(socket="a", watts=1), properties(socket="a", watts=2)
    updated = bench.provider.Update(update(olds, news, old_inputs, preview=True)).properties
    assert (updated["watts"], updated["serial"]) == (2, "s1")
    assert dict(updated["pin"]) == secret("1234")
    assert updated["burns"] == UNKNOWN_MARK, "an update makes this one anew"
    assert bench.lamp.asked == []


def test_an_output_that_is_due_is_a_change_without_a_changed_input(bench: ProviderBench) -> None:
    inputs = properties(socket="a", watts=1)
    for burns, paths in ((10, []), (0, ["burns"])):
        olds = properties(socket="a", watts=1, serial="s1", burns=burns)
        request = provider_pb2.DiffRequest(urn=URN, olds=olds, old_inputs=inputs, news=inputs)
        answer = bench.provider.Diff(request)
        assert sorted(answer.detailedDiff) == list(answer.diffs) == paths
        assert "burns" not in answer.stables
        assert not answer.replaces


@pytest.mark.parametrize(("old", "new", "paths", "replaces"), table(__file__, "diffs"))
def test_a_diff_names_each_path_and_what_must_be_replaced(
    bench: ProviderBench, old: dict[str, Any], new: dict[str, Any], paths: list[str], replaces: list[str]
) -> None:
    request = provider_pb2.DiffRequest(urn=URN, old_inputs=properties(**old), news=properties(**new))
    answer = bench.provider.Diff(request)
    assert sorted(answer.detailedDiff) == paths
    assert list(answer.replaces) == replaces
    expected = provider_pb2.DiffResponse.DIFF_SOME if paths else provider_pb2.DiffResponse.DIFF_NONE
    assert answer.changes == expected


def test_a_create_that_fails_is_recorded_so_that_it_can_be_repaired_or_removed(bench: ProviderBench) -> None:
    problem = Problem("node spot-0", "not ready", "ready", "look at its log")
    bench.lamp.during = raising(TrainyardError([problem]))
    with pytest.raises(grpc.RpcError) as caught:
        bench.provider.Create(create(socket="a", note=secret("mine")))
    found = half_done(caught.value)
    assert found.id == "lamp-a"
    assert list(found.reasons) == [str(problem)]
    assert dict(found.inputs["note"]) == secret("mine")
    assert "serial" not in found.properties


def test_a_failed_update_does_not_change_the_state(bench: ProviderBench) -> None:
    bench.lamp.during = raising(OSError("no space left"))
    olds = properties(watts=1, serial="s1", pin=secret("1234"))
    request = update(olds, properties(watts=2), properties(watts=1))
    with pytest.raises(grpc.RpcError) as caught:
        bench.provider.Update(request)
    found = half_done(caught.value)
    assert (found.properties, found.inputs) == (request.olds, request.old_inputs)
    assert "no space left" in found.reasons[0]


def test_a_resource_that_was_deleted_elsewhere_reads_as_missing(bench: ProviderBench) -> None:
    request = provider_pb2.ReadRequest(urn=URN, id="lamp-a", inputs=properties(socket="a"))
    assert bench.provider.Read(request).id == ""


def test_a_resource_that_has_changed_reads_with_inputs_that_differ(bench: ProviderBench) -> None:
    bench.lamp.live = ReadResult({"socket": "a", "watts": 0}, {"serial": "s1", "pin": "1234"})
    request = provider_pb2.ReadRequest(urn=URN, id="lamp-a", inputs=properties(socket="a", watts=40))
    found = bench.provider.Read(request)
    assert (found.id, found.inputs["watts"], found.properties["serial"]) == ("lamp-a", 0, "s1")


def test_a_delete_knows_the_last_inputs(bench: ProviderBench) -> None:
    bench.provider.Delete(provider_pb2.DeleteRequest(urn=URN, id="lamp-a", old_inputs=properties(socket="a")))
    assert bench.lamp.asked == [("delete", {"socket": "a"})]


def test_an_operation_reports_its_progress(bench: ProviderBench) -> None:
    def work(progress: HandlerProgress) -> None:
        progress.log("screwing it in")
        with progress.task("warming up"):
            pass

    bench.lamp.during = work
    bench.provider.Create(create(socket="a"))
    assert [line[:2] for line in bench.engine.lines[:2]] == [(URN, "screwing it in"), (URN, "warming up …")]
    assert all(ephemeral for _, _, ephemeral in bench.engine.lines)


@pytest.mark.parametrize("deaf", [False, True])
def test_an_interrupt_ends_an_operation_within_seconds_even_one_that_ignores_it(
    bench: ProviderBench, deaf: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "CANCEL_GRACE_SECONDS", 0.1 if deaf else TIMEOUT_SECONDS)
    begun, let_go = threading.Event(), threading.Event()

    def work(progress: HandlerProgress) -> None:
        begun.set()
        while not let_go.wait(0.02):
            if not deaf:
                progress.check()

    bench.lamp.during = work
    creating = bench.provider.Create.future(create(socket="a"))
    assert begun.wait(TIMEOUT_SECONDS)
    bench.provider.Cancel(Empty())
    try:
        with pytest.raises(grpc.RpcError) as caught:
            creating.result(timeout=TIMEOUT_SECONDS)
    finally:
        let_go.set()
    assert half_done(caught.value).reasons == ["interrupted; run again to resume"]


def test_a_type_of_another_provider_is_refused_by_name(bench: ProviderBench) -> None:
    request = provider_pb2.CheckRequest(urn="urn:pulumi:dev::tiny::test:index:Fan::one")
    with pytest.raises(grpc.RpcError, match="test:index:Fan"):
        bench.provider.Check(request)


def test_the_schema_agrees_with_the_types(bench: ProviderBench) -> None:
    schema = json.loads(bench.provider.GetSchema(provider_pb2.GetSchemaRequest()).schema)
    assert schema["version"] == VERSION
    assert schema["resources"].keys() == RESOURCE_TYPES.keys() | COMPONENTS.keys()
    for token, reference in RESOURCE_TYPES.items():
        each = load(reference)
        assert token == each.TYPE
        described = schema["resources"][each.TYPE]
        everything, inputs = described["properties"], described["inputProperties"]
        assert everything.keys() - inputs.keys() == each.OUTPUTS
        assert {name for name, value in everything.items() if value.get("secret")} == each.SECRETS
        replaced = {name for name, value in inputs.items() if value.get("willReplaceOnChanges")}
        assert replaced == each.REPLACES


def test_only_the_embedded_clusters_types_import_local() -> None:
    code = (
        "import sys; from engine.provider.resource_types import RESOURCE_TYPES, load;"
        "[load(where) for token, where in RESOURCE_TYPES.items() if ':local:' not in token];"
        "print('local' in sys.modules);"
        "[load(where) for where in RESOURCE_TYPES.values()];"
        "print('local' in sys.modules)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "True"]


def test_the_plugin_prints_its_port_without_slow_imports() -> None:
    code = (
        "import sys, engine.provider.service;"
        "print([m for m in ('pulumi', 'kubernetes', 'pydantic', 'rich', 'local') if m in sys.modules])"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.provider", "127.0.0.1:1"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with grpc.insecure_channel(f"127.0.0.1:{int(process.stdout.readline())}") as channel:
        answer = provider_pb2_grpc.ResourceProviderStub(channel).GetPluginInfo(Empty())
    process.terminate()
    assert (answer.version, process.wait(TIMEOUT_SECONDS)) == (VERSION, 0)
