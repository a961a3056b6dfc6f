"""A rehearsal: all that happens to a stack in its life, on the real engine, with stand-ins for the providers.

No credential, no network, nothing made. Each phase says what it expects, so that a program that never
settles, or leaves something over, fails here and not in a cloud.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from infra.errors import Problem, TrainyardError
from rehearsal import google
from rehearsal.standin import StandIn

PACKAGES = ("kubernetes", "trainyard", "aws", "gcp", "azure-native")
"""Every provider that a stack of this project may use; those that it does not use are never asked."""

ANY_VERSION = "999.0.0"
"""Newer than whatever an SDK asks for: one stand-in serves packages of many versions."""

OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "trainyard:local:EmbeddedCluster": {
        "endpoint": "https://rehearsal.invalid:6443",
        "caCertificate": "rehearsal",
        "kubeconfig": "rehearsal",
        "objectStoreAccessKey": "rehearsal",
        "objectStoreSecretKey": "rehearsal",
    },
    **google.OUTPUTS,
}
"""What each type's provider would add to its inputs."""


class Outcome(Protocol):
    """How one operation of the engine ended."""

    @property
    def changes(self) -> Mapping[str, int]:
        """Number of resources by what was done: `create`, `same`, …."""

    @property
    def seconds(self) -> float:
        """How long it took."""


class Operations(Protocol):
    """The engine on one stack, with the policy pack on."""

    def preview(self) -> Outcome: ...
    def up(self) -> Outcome: ...
    def refresh(self) -> Outcome: ...
    def destroy(self) -> Outcome: ...


@dataclass(frozen=True)
class Phase:
    """One phase that went as expected."""

    name: str
    changes: Mapping[str, int]
    seconds: float


@dataclass(frozen=True)
class Rehearsal:
    """A rehearsal that came to its end."""

    phases: tuple[Phase, ...]
    created: tuple[str, ...]
    """URNs in the order of their creation."""


def rehearse(
    open_engine: Callable[[Mapping[str, str]], Operations], seen: Callable[[Phase], None] = lambda _: None
) -> Rehearsal:
    """Run every phase; `open_engine` is given the variables that attach an engine to the stand-ins.

    Raises:
        TrainyardError: the engine, a policy or a phase's expectation failed.
    """
    with StandIn(PACKAGES, ANY_VERSION, OUTPUTS) as stand_in:
        engine = open_engine(stand_in.environment())
        phases: list[Phase] = []

        def play(name: str, operate: Callable[[], Outcome], expected: Mapping[str, int] | None) -> None:
            outcome = operate()
            changes = {change: number for change, number in outcome.changes.items() if number}
            phases.append(Phase(name, changes, outcome.seconds))
            seen(phases[-1])
            if expected is not None and changes != expected:
                raise TrainyardError([_unexpected(phases[-1], expected)])

        play("preview", engine.preview, None)
        number = phases[0].changes.get("create", 0)
        play("up", engine.up, {"create": number})
        play("up again", engine.up, {"same": number})
        play("refresh", engine.refresh, {"same": number})
        play("destroy", engine.destroy, {"delete": number})
        return Rehearsal(tuple(phases), tuple(stand_in.created))


def _unexpected(phase: Phase, expected: Mapping[str, int]) -> Problem:
    return Problem(
        f"rehearsal, {phase.name}",
        f"resources: {dict(phase.changes)}",
        f"what the preview announced: {dict(expected)}",
        "look for a value that differs from run to run, or a resource that depends on one",
    )
