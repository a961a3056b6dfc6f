"""The fake provider's service: resources persist, faults happen once, and inputs are validated."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import provider_pb2
from pulumi.runtime.proto.provider_pb2_grpc import ResourceProviderStub

from infra.errors import InputError
from rehearsal.cloud import Cloud, Kubernetes, Typed
from rehearsal.fake_provider import FakeProvider
from rehearsal.faults import Faults, Injector, parse_fail
from rehearsal.gcp.project import GcpProject
from rehearsal.store import ResourceStore
from rehearsal.wire import UNKNOWN, plain
from tests.tables import table

URN = "urn:pulumi:s::p::aws:s3/bucket:Bucket::logs"


@pytest.fixture
def fake_provider() -> Iterator[FakeProvider]:
    with FakeProvider(["aws", "gcp"]) as fake_provider:
        yield fake_provider


@pytest.fixture
def provider(fake_provider: FakeProvider) -> Iterator[ResourceProviderStub]:
    with grpc.insecure_channel(f"127.0.0.1:{fake_provider.port}") as channel:
        yield ResourceProviderStub(channel)


def struct(**values: object) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(values)
    return made


def test_only_what_changed_is_a_difference(provider: ResourceProviderStub) -> None:
    request = provider_pb2.DiffRequest(urn=URN, old_inputs=struct(a=1, b=1), news=struct(a=1, b=2, c=3))
    assert list(provider.Diff(request).diffs) == ["b", "c"]
    same = provider_pb2.DiffRequest(urn=URN, old_inputs=struct(a=1), news=struct(a=1))
    assert provider.Diff(same).changes == provider_pb2.DiffResponse.DIFF_NONE


WEB = "urn:pulumi:s::p::kubernetes:apps/v1:Deployment::web"


@contextmanager
def serving(cloud: Cloud, folder: Path, faults: Faults | None = None) -> Iterator[ResourceProviderStub]:
    injector = Injector(faults or Faults(), lambda: None)
    with (
        FakeProvider(["kubernetes"], cloud=cloud, folder=folder, injector=injector) as fake_provider,
        grpc.insecure_channel(f"127.0.0.1:{fake_provider.port}") as channel,
    ):
        yield ResourceProviderStub(channel)


def test_inputs_are_validated_by_the_sdks_types(tmp_path: Path) -> None:
    with serving(Typed({}), tmp_path) as provider:
        wrong = struct(spec={"replicas": "two", "template": {}, "selector": {}, "pods": 1})
        failures = provider.Check(provider_pb2.CheckRequest(urn=WEB, news=wrong)).failures
    reasons = [failure.reason for failure in failures]
    assert "spec.replicas: got 'two'; an integer is allowed" in reasons
    assert any(reason.startswith("spec.pods: is not a property of this type") for reason in reasons)


def test_unknown_values_pass_at_preview_and_secrets_are_validated(tmp_path: Path) -> None:
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": "many"}
    with serving(Typed({}), tmp_path) as provider:
        later = struct(spec={"replicas": UNKNOWN, "template": {}, "selector": {}})
        assert not provider.Check(provider_pb2.CheckRequest(urn=WEB, news=later)).failures
        hidden = struct(spec={"replicas": secret, "template": {}, "selector": {}})
        (failure,) = provider.Check(provider_pb2.CheckRequest(urn=WEB, news=hidden)).failures
    assert "spec.replicas" in failure.reason


def test_a_resource_that_the_cloud_cannot_change_is_replaced(tmp_path: Path) -> None:
    def spec(replicas: int, app: str) -> struct_pb2.Struct:
        return struct(spec={"replicas": replicas, "selector": {"matchLabels": {"app": app}}})

    with serving(Kubernetes(), tmp_path) as provider:
        scaled = provider_pb2.DiffRequest(urn=WEB, old_inputs=spec(1, "a"), news=spec(2, "a"))
        assert not provider.Diff(scaled).replaces
        other = provider_pb2.DiffRequest(urn=WEB, old_inputs=spec(1, "a"), news=spec(1, "b"))
        assert list(provider.Diff(other).replaces) == ["spec.selector"]


def test_resources_outlive_the_fakes_process(tmp_path: Path) -> None:
    with serving(Cloud({}), tmp_path) as provider:
        made = provider.Create(provider_pb2.CreateRequest(urn=WEB, properties=struct(a=1)))
    with serving(Cloud({}), tmp_path) as provider:
        read = provider.Read(provider_pb2.ReadRequest(id=made.id, urn=WEB))
    assert dict(read.properties) == {"a": 1}
    assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.iterdir())


def test_a_creation_with_an_injected_fault_fails_once(tmp_path: Path) -> None:
    request = provider_pb2.CreateRequest(urn=WEB, properties=struct(a=1))
    with serving(Cloud({}), tmp_path, Faults(fail="Deployment", fail_at=2)) as provider:
        provider.Create(request)
        with pytest.raises(grpc.RpcError, match="creation 2 of Deployment fails"):
            provider.Create(request)
        provider.Create(request)


def test_a_group_without_capacity_exists_and_its_creation_fails(tmp_path: Path) -> None:
    group = struct(labels={"trainyard.dev/pool": "spot"})
    request = provider_pb2.CreateRequest(urn=WEB, properties=group)
    starving = serving(Cloud({}), tmp_path, Faults(no_capacity="spot"))
    message = "InsufficientInstanceCapacity in pool spot"
    with starving as provider, pytest.raises(grpc.RpcError, match=message) as failed:
        provider.Create(request)
    assert "ErrorResourceInitFailed" in str(failed.value.trailing_metadata())
    assert len(ResourceStore(tmp_path)._resources) == 1


@pytest.mark.parametrize(("text", "parsed"), table(__file__, "faults"))
def test_a_type_to_fail_is_read_with_its_number(text: str, parsed: list[Any]) -> None:
    assert [*parse_fail(text)] == parsed


@pytest.mark.parametrize("text", [":2", "NodeGroup:0"])
def test_an_invalid_fault_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="TYPE or TYPE:NTH"):
        parse_fail(text)


def test_a_name_that_gcp_requires_is_generated_once(tmp_path: Path) -> None:
    urn = "urn:pulumi:s::p::gcp:compute/router:Router::nat"
    with serving(GcpProject("example-training", "europe-west1"), tmp_path) as provider:
        checked = provider.Check(provider_pb2.CheckRequest(urn=urn, news=struct(network="vpc")))
        name = checked.inputs["name"]
        again = provider_pb2.CheckRequest(urn=urn, olds=checked.inputs, news=struct(network="vpc"))
        assert provider.Check(again).inputs["name"] == name
    assert name.startswith("nat-")


def test_computed_parts_of_a_property_are_unknown_at_preview_and_are_kept_by_updates(tmp_path: Path) -> None:
    cloud = Cloud({"kubernetes:apps/v1:Deployment": {"nets": [{"address": "10.0.0.2"}], "more": 1}})
    with serving(cloud, tmp_path) as provider:
        wanted = provider_pb2.CreateRequest(urn=WEB, properties=struct(nets=[{"name": "vpc"}]), preview=True)
        planned = provider.Create(wanted)
        assert plain(planned.properties) == {"nets": [{"name": "vpc", "address": UNKNOWN}]}
        wanted.preview = False
        made = provider.Create(wanted)
        both = {"nets": [{"name": "vpc", "address": "10.0.0.2"}], "more": 1}
        assert plain(made.properties) == both
        change = provider_pb2.UpdateRequest(
            urn=WEB, id=made.id, news=struct(nets=[{"name": "vpc"}], size=2), preview=True
        )
        assert plain(provider.Update(change).properties) == {**both, "size": 2}


def test_an_engine_is_killed_once_and_with_no_operation_under_way(tmp_path: Path) -> None:
    killed: list[int] = []
    store = ResourceStore(tmp_path)
    injector = Injector(Faults(crash_after=3), lambda: killed.append(len(list(store))))
    request = provider_pb2.CreateRequest(urn=WEB, properties=struct(a=1))
    with (
        FakeProvider(["kubernetes"], folder=tmp_path, injector=injector) as fake_provider,
        grpc.insecure_channel(f"127.0.0.1:{fake_provider.port}") as channel,
    ):
        store = fake_provider.store
        calls = [ResourceProviderStub(channel).Create.future(request) for _ in range(12)]
        ended = [call.exception() for call in calls]
    assert len(killed) == 1
    assert killed[0] >= 3
    refused = [error for error in ended if error is not None]
    assert all("the engine is being killed" in str(error) for error in refused)
    assert len(fake_provider.created) == 12 - len(refused)
