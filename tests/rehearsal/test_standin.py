"""The stand-in keeps what it is given, as a cloud would."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import provider_pb2
from pulumi.runtime.proto.provider_pb2_grpc import ResourceProviderStub

from rehearsal.standin import StandIn

URN = "urn:pulumi:s::p::aws:s3/bucket:Bucket::logs"


@pytest.fixture
def stand_in() -> Iterator[StandIn]:
    with StandIn(["aws", "gcp"]) as stand_in:
        yield stand_in


@pytest.fixture
def provider(stand_in: StandIn) -> Iterator[ResourceProviderStub]:
    with grpc.insecure_channel(f"127.0.0.1:{stand_in.port}") as channel:
        yield ResourceProviderStub(channel)


def struct(**values: object) -> struct_pb2.Struct:
    made = struct_pb2.Struct()
    made.update(values)
    return made


def test_the_engine_is_told_to_attach_for_every_package(stand_in: StandIn) -> None:
    attached = stand_in.environment()["PULUMI_DEBUG_PROVIDERS"]
    assert attached == f"aws:{stand_in.port},gcp:{stand_in.port}"


def test_a_preview_makes_nothing(stand_in: StandIn, provider: ResourceProviderStub) -> None:
    made = provider.Create(provider_pb2.CreateRequest(urn=URN, properties=struct(a=1), preview=True))
    assert made.id == ""
    assert stand_in.created == []


def test_what_is_created_can_be_read_changed_and_deleted(
    stand_in: StandIn, provider: ResourceProviderStub
) -> None:
    made = provider.Create(provider_pb2.CreateRequest(urn=URN, properties=struct(a=1)))
    assert stand_in.created == [URN]
    provider.Update(provider_pb2.UpdateRequest(id=made.id, urn=URN, news=struct(a=2)))
    read = provider.Read(provider_pb2.ReadRequest(id=made.id, urn=URN))
    assert dict(read.properties) == {"a": 2}
    provider.Delete(provider_pb2.DeleteRequest(id=made.id, urn=URN))
    assert provider.Read(provider_pb2.ReadRequest(id=made.id, urn=URN)).id == ""


def test_only_what_changed_is_a_difference(provider: ResourceProviderStub) -> None:
    request = provider_pb2.DiffRequest(old_inputs=struct(a=1, b=1), news=struct(a=1, b=2, c=3))
    assert list(provider.Diff(request).diffs) == ["b", "c"]
    same = provider_pb2.DiffRequest(old_inputs=struct(a=1), news=struct(a=1))
    assert provider.Diff(same).changes == provider_pb2.DiffResponse.DIFF_NONE
