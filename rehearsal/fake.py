"""`Fake`: how a target is rehearsed (start, change, API server), and the table of each target's fake."""

from __future__ import annotations

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
"""The content of a stack file, checked and as plain data: `provider`, `pools`, …."""


@dataclass(frozen=True)
class RunningFake:
    """A fake at work for one stack."""

    clouds: Mapping[str, Cloud] = field(default_factory=dict)
    """Package of the engine → what its provider asks; in place of those that every stack has, too."""
    ask: Any = None
    """What the target's finder asks in place of the account; None for a target that has no finder."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the engine's environment."""


Start = Callable[[Stack, Path], AbstractContextManager[RunningFake]]
"""Start the fake of a stack; what it makes is retained in the folder."""
Change = Callable[[dict[str, Any]], Mapping[str, int]]
"""Change a stack's plain data as its owner would; return what `up` must then do besides `same`."""


def grow(stack: dict[str, Any]) -> Mapping[str, int]:
    """Give the last pool that runs jobs twice its nodes: whole slices, and as many in each zone.

    What is reserved does not double, so without another the system pool does.
    """
    pools = stack["pools"]
    bought = [pool for pool in pools if pool["capacity"] in ("on-demand", "spot")]
    grown = bought or [pool for pool in pools if pool["capacity"] == "system"]
    grown[-1]["num_nodes"] *= 2
    return {"update": 1}


@dataclass(frozen=True)
class Fake:
    """How a target is rehearsed."""

    start: Start = lambda _stack, _folder: nullcontext(RunningFake())
    change: Change = grow
    sells_machines: bool = True
    """Whether capacity can be short: False where machines exist already."""
    control_plane: DeclaredControlPlane | None = None
    """How its API servers are reached; None where the cluster exists already, or on this host."""


FAKES: Mapping[str, str] = {
    "local": "rehearsal.local.fake:FAKE",
    "aws": "rehearsal.aws.fake:FAKE",
    "gcp": "rehearsal.gcp.fake:FAKE",
    "azure": "rehearsal.azure.fake:FAKE",
    "onprem": "rehearsal.onprem.fake:FAKE",
    "coreweave": "rehearsal.coreweave.fake:FAKE",
}
"""Kind of target → `module:name` of its fake, imported on use: a new fake adds its line here."""


def refusals_of(kind: str) -> dict[str, KnownRefusal]:
    """Return how the cloud of a target refuses, by name; KeyError for a target that has no fake."""
    return refusals(FAKES[kind].partition(":")[0].rpartition(".")[0])


def fake_of(kind: str) -> Fake:
    """Return the fake of a target; KeyError for one that has none."""
    module, name = FAKES[kind].split(":")
    found: Fake = getattr(import_module(module), name)
    return found
