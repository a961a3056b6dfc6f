"""The phases of a rehearsal with a fake engine: it fails if a phase differs from its preview."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from infra.errors import Problem, TrainyardError
from rehearsal.cloud import Cloud
from rehearsal.faults import Faults
from rehearsal.leaks import SECRET, Leak
from rehearsal.rehearse import FakeProviders, Open, Rehearsal
from rehearsal.rehearse import rehearse as rehearse_on
from tests.tables import table


@dataclass(frozen=True)
class FakeOutcome:
    changes: Mapping[str, int]
    seconds: float = 1.0
    notes: tuple[str, ...] = ()


@dataclass
class FakeEngine:
    """A fake engine with the outcomes of its operations."""

    message: dict[str, list[Mapping[str, int]]] = field(default_factory=dict)

    def _next(self, operation: str) -> FakeOutcome:
        return FakeOutcome(self.message[operation].pop(0))

    def preview(self) -> FakeOutcome:
        return self._next("preview")

    def up(self) -> FakeOutcome:
        return self._next("up")

    def refresh(self) -> FakeOutcome:
        return self._next("refresh")

    def destroy(self) -> FakeOutcome:
        return self._next("destroy")

    def adopt(self) -> FakeOutcome:
        return self._next("adopt")

    def delete_state(self) -> None: ...

    def unprotect(self) -> FakeOutcome | None:
        return None

    def request_protection(self) -> None: ...

    def change(self) -> Mapping[str, int]:
        return {"update": 1}

    def resources(self) -> Sequence[Mapping[str, Any]]:
        return ()

    def leaks(self) -> Sequence[Leak]:
        return ()

    def kill(self) -> None: ...


def rehearse(open_engine: Open) -> Rehearsal:
    with tempfile.TemporaryDirectory() as folder:
        clouds = {"kubernetes": Cloud({}), "aws": Cloud({})}
        return rehearse_on(open_engine, FakeProviders(clouds, Path(folder)))


def settled() -> dict[str, list[Mapping[str, int]]]:
    return {
        "preview": [{"create": 3}],
        "up": [{"create": 3}, {"same": 3, "update": 0}, {"same": 2, "update": 1}],
        "refresh": [{"same": 3}],
        "destroy": [{"delete": 3}],
    }


@pytest.mark.parametrize(("operation", "index", "changes", "phase"), table(__file__, "phases"))
def test_a_phase_that_differs_from_the_preview_is_named(
    operation: str, index: int, changes: Mapping[str, int], phase: str
) -> None:
    message = settled()
    message[operation][index] = changes
    with pytest.raises(TrainyardError, match=f"rehearsal, {phase}\n"):
        rehearse(lambda _: FakeEngine(message))


class PhantomResourceEngine(FakeEngine):
    """A fake engine whose state has a resource that does not exist."""

    def resources(self) -> Sequence[Mapping[str, Any]]:
        token = "aws:ec2/vpc:Vpc"
        return [{"urn": f"urn:pulumi:s::p::{token}::vpc", "type": token, "custom": True}]


def test_a_resource_that_only_the_state_has_is_named() -> None:
    with pytest.raises(TrainyardError, match=r"aws:ec2/vpc:Vpc::vpc\n.*does not exist"):
        rehearse(lambda _: PhantomResourceEngine(settled()))


def test_a_fault_that_cannot_happen_to_the_stack_is_reported(tmp_path: Path) -> None:
    stage = FakeProviders({"aws": Cloud({})}, tmp_path, Faults(fail="Cluster", fail_at=9))
    with pytest.raises(TrainyardError, match="creation 9 of Cluster fails: `up` succeeded"):
        rehearse_on(lambda _: FakeEngine(settled()), stage)


class LeakingEngine(FakeEngine):
    """A fake engine whose state has a secret in plain text."""

    def resources(self) -> Sequence[Mapping[str, Any]]:
        outputs = {"kubeconfig": {"users": [f"{SECRET}-kubeconfig"]}}
        urn = "urn:pulumi:s::p::pulumi:pulumi:Stack::s"
        return [{"urn": urn, "type": "pulumi:pulumi:Stack", "custom": False, "outputs": outputs}]


def test_a_secret_in_plain_text_is_named_and_not_printed() -> None:
    with pytest.raises(TrainyardError, match=r"outputs\.kubeconfig\n.*in plain text") as raised:
        rehearse(lambda _: LeakingEngine(settled()))
    assert SECRET not in str(raised.value)


def test_a_secret_in_a_file_fails_the_rehearsal() -> None:
    class LeakingFilesEngine(FakeEngine):
        def leaks(self) -> Sequence[Leak]:
            return [Leak("history/one.json:7", "a private key")]

    with pytest.raises(TrainyardError, match=r"history/one\.json:7\n.*a private key in plain text"):
        rehearse(lambda _: LeakingFilesEngine(settled()))


def test_an_up_that_fails_does_not_count_as_the_injected_fault(tmp_path: Path) -> None:
    class FailingUpEngine(FakeEngine):
        def up(self) -> FakeOutcome:
            raise TrainyardError([Problem("the program", "a bug", "none", "mend it")])

    stage = FakeProviders({"aws": Cloud({})}, tmp_path, Faults(fail="Cluster"))
    with pytest.raises(TrainyardError, match="a bug"):
        rehearse_on(lambda _: FailingUpEngine(settled()), stage)


class RefusesDestroyEngine(FakeEngine):
    """A fake engine that refuses to destroy protected resources, after `num_deleted` deletions."""

    num_deleted = 0

    def __init__(self) -> None:
        super().__init__(settled())
        self.is_protected = True
        self.names = ["one", "two"]

    def resources(self) -> Sequence[Mapping[str, Any]]:
        kind = "pulumi:providers:aws"
        about = {"type": kind, "custom": True, "protect": self.is_protected}
        return [{"urn": f"urn:pulumi:s::p::{kind}::{name}", **about} for name in self.names]

    def destroy(self) -> FakeOutcome:
        if self.is_protected:
            del self.names[: self.num_deleted]
            raise TrainyardError([Problem("destroy", "a protected resource", "none", "unprotect it")])
        self.names.clear()
        return super().destroy()

    def unprotect(self) -> FakeOutcome:
        self.is_protected = False
        return FakeOutcome({"same": 2})


def test_a_destroy_that_is_refused_too_late_is_named() -> None:
    class RefusesDestroyLateEngine(RefusesDestroyEngine):
        num_deleted = 1

    with pytest.raises(TrainyardError, match=r"one\n.*was deleted though others are protected"):
        rehearse(lambda _: RefusesDestroyLateEngine())
