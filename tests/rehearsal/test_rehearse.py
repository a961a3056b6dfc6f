"""A rehearsal fails where a program does not settle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from infra.errors import TrainyardError
from rehearsal.rehearse import Phase, rehearse


@dataclass(frozen=True)
class Outcome:
    changes: Mapping[str, int]
    seconds: float = 1.0


@dataclass
class FakeEngine:
    """An engine that says of each operation what it is told to say."""

    said: dict[str, list[Mapping[str, int]]] = field(default_factory=dict)

    def _next(self, operation: str) -> Outcome:
        return Outcome(self.said[operation].pop(0))

    def preview(self) -> Outcome:
        return self._next("preview")

    def up(self) -> Outcome:
        return self._next("up")

    def refresh(self) -> Outcome:
        return self._next("refresh")

    def destroy(self) -> Outcome:
        return self._next("destroy")


def settled() -> dict[str, list[Mapping[str, int]]]:
    return {
        "preview": [{"create": 3}],
        "up": [{"create": 3}, {"same": 3, "update": 0}],
        "refresh": [{"same": 3}],
        "destroy": [{"delete": 3}],
    }


def test_a_program_that_settles_goes_through_all_phases() -> None:
    seen: list[Phase] = []
    rehearse(lambda _: FakeEngine(settled()), seen.append)
    assert [phase.name for phase in seen] == ["preview", "up", "up again", "refresh", "destroy"]


@pytest.mark.parametrize(
    ("operation", "index", "changes", "phase"),
    [
        ("up", 1, {"same": 2, "update": 1}, "up again"),
        ("up", 0, {"create": 2}, "up"),
        ("refresh", 0, {"same": 2}, "refresh"),
        ("destroy", 0, {"delete": 2}, "destroy"),
    ],
)
def test_a_phase_that_differs_from_the_preview_is_named(
    operation: str, index: int, changes: Mapping[str, int], phase: str
) -> None:
    said = settled()
    said[operation][index] = changes
    with pytest.raises(TrainyardError, match=f"rehearsal, {phase}\n"):
        rehearse(lambda _: FakeEngine(said))


def test_the_engine_is_told_to_attach_to_the_stand_ins() -> None:
    attached: dict[str, str] = {}

    def open_engine(environment: Mapping[str, str]) -> FakeEngine:
        attached.update(environment)
        return FakeEngine(settled())

    rehearse(open_engine)
    assert "kubernetes:" in attached["PULUMI_DEBUG_PROVIDERS"]
