"""Defines what each target brings to its rehearsal (`Fake`: a fake cloud, a change of the stack, access to
its API server), and finds a target's fake and its known refusals.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rehearsal.cloud import Cloud
from rehearsal.reach import DeclaredControlPlane
from rehearsal.refusals import KnownRefusal, refusals

Stack = Mapping[str, Any]
"""Validated content of a stack file as plain data: `target`, `pools`, …."""


@dataclass(frozen=True)
class RunningFake:
    """A running fake of a stack's target."""

    clouds: Mapping[str, Cloud] = field(default_factory=dict)
    """Engine package → fake cloud behind its provider; also overrides the fakes that every stack has."""
    ask: Any = None
    """Fake client for the target's finder; None for a target without a finder."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the engine."""


Start = Callable[[Stack, Path], AbstractContextManager[RunningFake]]
"""Function that starts the fake of a stack, which stores its resources in the folder."""
Change = Callable[[dict[str, Any]], Mapping[str, int]]
"""Function that changes a stack's data as its owner would, and returns the changes that `up` must report."""


def grow(stack: dict[str, Any]) -> Mapping[str, int]:
    """Give the last pool that runs jobs twice its nodes: whole slices, and as many in each zone.

    Reserved capacity cannot grow: where every job pool is reserved, the system pool doubles.
    """
    pools = stack["pools"]
    bought = [pool for pool in pools if not pool.get("role") and pool.get("capacity") != "reserved"]
    grown = (bought or [pool for pool in pools if pool.get("role")])[-1]
    least, dots, most = str(grown["nodes"]).rpartition("..")
    grown["nodes"] = f"{least}..{int(most) * 2}" if dots else int(most) * 2
    return {"update": 1}


@dataclass(frozen=True)
class Fake:
    """A target's rehearsal: how its fake starts, how a stack changes, and how its API server is reached."""

    start: Start = lambda _stack, _folder: nullcontext(RunningFake())
    change: Change = grow
    sells_machines: bool = True
    """Whether the target can run out of capacity; False where its machines exist already."""
    control_plane: DeclaredControlPlane | None = None
    """Access to the target's API servers; None where the cluster exists already or is on this host."""


FAKES: Mapping[str, str] = {
    file.parent.name: f"rehearsal.{file.parent.name}.fake:FAKE"
    for file in sorted(Path(__file__).parent.glob("*/fake.py"))
}
"""Kind of target → `module:name` of its fake, imported on use."""


def refusals_of(kind: str) -> dict[str, KnownRefusal]:
    """Return how the cloud of a target refuses, by name; KeyError for a target that has no fake."""
    return refusals(FAKES[kind].partition(":")[0].rpartition(".")[0])


def fake_of(kind: str) -> Fake:
    """Return the fake of a target; KeyError for one that has none."""
    module, name = FAKES[kind].split(":")
    found: Fake = getattr(import_module(module), name)
    return found
