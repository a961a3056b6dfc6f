"""Refusals of the clouds in a rehearsal: each has its source, and a next step by the cloud's message."""

from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import struct_pb2
from pulumi.runtime.proto import provider_pb2

from infra.common.target_registry import target_of
from infra.errors import GO_ON, InputError, Problem, TrainyardError
from rehearsal.cloud import Cloud, RequestedResource
from rehearsal.fake import FAKES, refusals_of
from rehearsal.faults import Faults, Injector
from rehearsal.refusals import KnownRefusal
from rehearsal.rehearse import FakeProviders
from rehearsal.rehearse import rehearse as rehearse_on
from tests.rehearsal.test_fake_provider import serving
from tests.rehearsal.test_rehearse import FakeEngine, settled
from tests.tables import table
from trainyard.commands.stack.rehearse.command import ALL, refusing
from trainyard.stack.session import Session

ROWS = [(kind, each) for kind in FAKES for each in refusals_of(kind).values()]
URN = "urn:pulumi:s::p::aws:ec2/subnet:Subnet::private"
PLAIN = KnownRefusal(
    "no", "it says no", ("aws:ec2/subnet:Subnet",), "no, not {cidrBlock}", "nobody, https://x"
)


def subnet(**inputs: Any) -> RequestedResource:
    return RequestedResource("aws:ec2/subnet:Subnet", "private", inputs)


@pytest.mark.parametrize(("kind", "row"), ROWS, ids=lambda each: getattr(each, "name", each))
def test_every_refusal_has_its_source_and_a_next_step(kind: str, row: KnownRefusal) -> None:
    requested = RequestedResource(
        row.types[0], "training-x", {"clusterName": "training", "project": "example"}
    )
    step = target_of(kind).advise(row.text(requested))
    assert len(step) > 20
    assert "{" not in step
    assert "https://" in row.source


@pytest.mark.parametrize("message", ["", "error: something that nobody has met", "exit status 1"])
def test_an_unknown_message_gets_no_advice(message: str) -> None:
    assert all(target_of(kind).advise(message) == "" for kind in FAKES)


@pytest.mark.parametrize(("where", "inputs", "matches"), table(__file__, "matches"))
def test_a_row_matches_the_operation(where: dict[str, Any], inputs: dict[str, Any], matches: bool) -> None:
    row = KnownRefusal("no", "", ("Subnet",), "no", "", where=where)
    assert row.matches(subnet(**inputs), "create") is matches
    assert not row.matches(subnet(**inputs), "delete")


def test_a_refusal_ends_once_the_user_has_corrected_its_cause() -> None:
    injector = Injector(Faults(refusals=(PLAIN,)), lambda: None)
    for _ in range(2):
        with pytest.raises(Exception, match=r"no, not 10\.0\.0\.0/8"):
            injector.before(subnet(cidrBlock="10.0.0.0/8"))
    injector.apply_fixes()
    injector.before(subnet())
    assert not injector.raised


def test_a_refusal_that_lasts_for_hours_is_not_corrected() -> None:
    lasting = KnownRefusal("no", "", ("Subnet",), "no", "", lasts=True)
    injector = Injector(Faults(refusals=(lasting,)), lambda: None)
    with pytest.raises(Exception, match="no"):
        injector.before(subnet())
    injector.apply_fixes()
    with pytest.raises(Exception, match="no"):
        injector.before(subnet())


def test_after_a_refused_deletion_the_resource_still_exists(tmp_path: Path) -> None:
    left = KnownRefusal("left", "", ("Subnet",), "in use", "", moment="delete")
    with serving(Cloud({}), tmp_path, Faults(refusals=(left,))) as provider:
        made = provider.Create(provider_pb2.CreateRequest(urn=URN, properties=struct_pb2.Struct()))
        with pytest.raises(grpc.RpcError, match="in use"):
            provider.Delete(provider_pb2.DeleteRequest(urn=URN, id=made.id))
        assert provider.Read(provider_pb2.ReadRequest(urn=URN, id=made.id)).id == made.id


def test_the_repair_of_a_half_created_resource_can_be_refused_in_another_way(tmp_path: Path) -> None:
    rows = [KnownRefusal(name, "", ("Subnet",), name, "", retained=True) for name in ("first", "second")]
    injector = Injector(Faults(refusals=tuple(rows)), lambda: None)
    for name, ask in (("first", injector.after), ("second", injector.mending)):
        with pytest.raises(Exception, match=name):
            ask(subnet())
        injector.apply_fixes()
    injector.mending(subnet())


class RefusingEngine(FakeEngine):
    """A fake engine whose first `up` is refused, and which reports the refusal with a fix."""

    injector: Injector
    fix = "do this"

    def up(self) -> Any:
        try:
            self.injector.before(subnet(cidrBlock="x"))
        except Exception as error:
            raise TrainyardError([Problem("subnet", f"1 error: {error}", "no error", self.fix)]) from None
        return super().up()


def run_rehearsal(monkeypatch: pytest.MonkeyPatch, folder: Path, engine: RefusingEngine) -> Any:
    def opened(_: object) -> RefusingEngine:
        return engine

    def injector(*arguments: Any) -> Injector:
        engine.injector = Injector(*arguments)
        return engine.injector

    monkeypatch.setattr("rehearsal.rehearse.Injector", injector)
    return rehearse_on(opened, FakeProviders({"aws": Cloud({})}, folder, Faults(refusals=(PLAIN,))))


def test_a_rehearsal_survives_a_refusal_with_a_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = run_rehearsal(monkeypatch, tmp_path, RefusingEngine(settled()))
    (refused,) = done.refused
    assert (refused.name, refused.fix) == ("no", "do this")
    assert done.survived == ()
    assert done.phases[1].name == "up after refusals"


def test_a_rehearsal_fails_by_a_refusal_without_step(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    engine = RefusingEngine(settled())
    engine.fix = GO_ON
    with pytest.raises(TrainyardError, match=r"rehearsal, refusal no\n.*no, not x"):
        run_rehearsal(monkeypatch, tmp_path, engine)


def test_a_refusal_that_nothing_triggers_is_reported_as_survived(tmp_path: Path) -> None:
    stage = FakeProviders({"aws": Cloud({})}, tmp_path, Faults(refusals=(PLAIN,)))
    assert rehearse_on(lambda _: FakeEngine(settled()), stage).survived == ("no",)


def test_refusals_are_selected_by_name_and_an_unknown_name_lists_them() -> None:
    session = Session("aws-dev")
    assert {each.name for each in refusing(session, Faults(), [ALL]).refusals} >= {"spot-empty", "no-cards"}
    assert [each.name for each in refusing(session, Faults(), ["new-role"]).refusals] == ["new-role"]
    with pytest.raises(InputError, match="spot-empty: spot capacity is unavailable"):
        refusing(session, Faults(), ["list"])
