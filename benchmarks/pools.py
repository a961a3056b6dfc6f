"""Benchmark: time to preview generated stacks with 50, 100 and 200 pools, against a bare program of the same
size, and how the time per pool grows.

Both talk to the same fakes, which accept any input: the program and the engine are measured, not a cloud's
API.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from benchmarks.arena import quiet
from benchmarks.bare import check_same, engine, write_bare, write_project
from benchmarks.figures import Figure, Repeats, alternating
from engine.engine import Engine
from engine.paths import Paths
from infra.common.artifacts import ROOT
from infra.stackfile import parse
from rehearsal.cloud import Cloud
from rehearsal.fake_provider import FakeProvider
from rehearsal.rehearse import ANY_VERSION
from trainyard.stack.session import Session

SIZES = (50, 100, 200)
ROUNDS = 1
PACKAGES = ("aws", "kubernetes", "trainyard")
STACK = "many"


@dataclass(frozen=True)
class Arms:
    """Samples of both arms at one size, in seconds."""

    pools: int
    ours: tuple[float, ...]
    bare: tuple[float, ...]

    def figure(self) -> Figure:
        """Return ours against the bare program's, with the target, which is the same at each size."""
        samples = Repeats("trainyard", "s", self.ours), Repeats("bare program", "s", self.bare)
        return Figure(f"preview of {self.pools} pools", samples[0], at_most=1.2, peer=samples[1])


def measure() -> list[Figure]:
    """Time the previews at each size."""
    with tempfile.TemporaryDirectory(prefix="trainyard-pools-") as folder:
        arms = [_arms(size, Path(folder) / str(size)) for size in SIZES]
    return [*(each.figure() for each in arms), growth(arms)]


def growth(arms: Sequence[Arms]) -> Figure:
    """Return the time of a pool among the last hundred against one among the fifty before them."""
    few, some, many = (Repeats("", "s", each.ours).median for each in arms)
    late = Repeats("per pool, 100 to 200", "ms", (1000 * (many - some) / 100,))
    early = Repeats("per pool, 50 to 100", "ms", (1000 * (some - few) / 50,))
    return Figure("growth of the preview (1 is linear)", late, at_most=1.25, peer=early)


def generated(pools: int) -> dict[str, Any]:
    """Return the stack file of `aws-dev` with `pools` additional CPU pools."""
    data: dict[str, Any] = yaml.safe_load((ROOT / "stacks" / "Pulumi.aws-dev.yaml").read_text())
    more = [
        {"name": f"cpu-{index}", "capacity": "on-demand", "nodes": 2, "machine": "c7i.4xlarge"}
        for index in range(pools)
    ]
    data["config"]["trainyard:stack"]["pools"] += more
    return data


@contextmanager
def attached(folder: Path) -> Iterator[Mapping[str, str]]:
    """Stand in for all providers; yields the environment of an engine that talks to them."""
    tools = Session(STACK, replace(Paths.from_environment(), state=folder / "state"))
    with FakeProvider(PACKAGES, ANY_VERSION, cloud=Cloud({})) as fake_provider:
        yield {**tools.toolchain.environment(), **fake_provider.environment()}


def our_program(folder: Path, data: Mapping[str, Any], environment: Mapping[str, str]) -> Engine:
    """Return an engine on our program with that stack file, in a project below the folder."""
    ours = write_project(folder / "ours", STACK, data, main="infra")
    (ours / "infra").symlink_to(ROOT / "infra")
    return engine(ours, {**environment, "TRAINYARD_STACKS": str(ours / "stacks")})


def _arms(size: int, folder: Path) -> Arms:
    data = generated(size)
    bare = write_bare(folder / "bare", STACK, parse(data["config"]["trainyard:stack"]))
    with attached(folder) as tools:
        engines = our_program(folder, data, tools), engine(bare, tools)
        # Not counted: charts are rendered, and Python's modules compiled.
        check_same(*(each.preview(STACK, quiet()) for each in engines))
        taken, against = alternating(
            lambda: engines[0].preview(STACK, quiet()).seconds,
            lambda: engines[1].preview(STACK, quiet()).seconds,
            ROUNDS,
        )
    return Arms(size, taken, against)
