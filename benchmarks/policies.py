"""Benchmark: wall and CPU time of previews of AWS stacks of up to about 2,000 resources under all policies,
against previews with a pack without rules and with no pack.

The stack is `aws-dev` with generated pools. `benchmarks.buckets` measures another program with the arms,
figures and plot of this module.
"""

from __future__ import annotations

import json
import re
import resource
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt
import yaml

from benchmarks.arena import quiet
from benchmarks.figures import RESULTS, Figure, Repeats, in_both_orders
from benchmarks.pools import STACK, attached, generated, our_program
from infra.common.artifacts import ROOT

POOLS = (90, 210, 430)
"""Numbers of pools; each pool adds four resources to about 280, so the stacks have 638, 1,118 and 1,998."""
ROUNDS = 2
"""Rounds; each takes both orders of the arms, so each arm has four samples at every size."""
WHOLE, NO_RULES, STANDARD, NONE = "all policies", "our server, no rules", "policy SDK, idle rule", "no pack"

PACKS = {
    NO_RULES: f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from policies.analyzer import serve
serve(())
""",
    STANDARD: """
from pulumi_policy import PolicyPack, ResourceValidationPolicy
PolicyPack("standard", [ResourceValidationPolicy("idle", "Finds nothing", lambda resource, report: None)])
""",
}
"""Policy packs of the arms. The empty ones show what the engine and a server cost without any evaluation."""


Taken = Mapping[str, tuple[float, ...]]
"""Arm → seconds of each repeat."""


def measure() -> list[Figure]:
    """Time all arms at each size, and plot how what they add grows."""
    taken = dict(_of_stack(pools) for pools in POOLS)
    wall, cpu = ({size: clocks[clock] for size, clocks in taken.items()} for clock in (0, 1))
    plot("policies", wall, cpu)
    return figures("AWS stack", wall, cpu)


def _of_stack(pools: int) -> tuple[int, tuple[Taken, Taken]]:
    """Number of resources of the stack with so many additional pools, and times of its previews."""
    with tempfile.TemporaryDirectory(prefix="trainyard-policies-") as name, attached(Path(name)) as tools:
        engine = our_program(Path(name), generated(pools), tools)
        packs: dict[str, tuple[Path, ...]] = {
            WHOLE: (ROOT / "policies",),
            NO_RULES: (pack_of(Path(name), NO_RULES),),
            NONE: (),
        }
        sizes: set[int] = set()

        def preview(packs: Sequence[Path]) -> float:
            result = engine.preview(STACK, quiet(), policy_packs=packs)
            sizes.add(len(result.announced))
            return result.seconds

        taken = take({name: Arm(partial(preview, given)) for name, given in packs.items()})
    (size,) = sizes
    return size, taken


def figures(what: str, wall: Mapping[int, Taken], cpu: Mapping[int, Taken]) -> list[Figure]:
    """Figures of the largest size, and of the time per resource at each size."""
    size = max(wall)
    claim = f"preview of {size} resources ({what}) under all policies"
    return [
        Figure(claim, _samples(WHOLE, wall[size]), at_most=1.15, peer=_samples(NONE, wall[size])),
        *(_per_resource(what, count, taken) for count, taken in wall.items()),
        *(
            Figure(
                f"CPU of a {claim}", _samples(WHOLE, cpu[size]), at_most=1.15, peer=_samples(name, cpu[size])
            )
            for name in (NONE, NO_RULES, STANDARD)
            if name in cpu[size]
        ),
    ]


def _samples(name: str, taken: Taken) -> Repeats:
    return Repeats(name, "s", taken[name])


def _per_resource(what: str, size: int, taken: Taken) -> Figure:
    pairs = zip(sorted(taken[WHOLE]), sorted(taken[NONE]), strict=True)
    added = tuple(1000 * (guarded - bare) / size for guarded, bare in pairs)
    return Figure(f"added per resource, of {size} ({what})", Repeats(WHOLE, "ms", added), at_most=1.0)


def take(arms: Mapping[str, Arm], warm: bool = False) -> tuple[Taken, Taken]:
    """Time by the clock, and of CPU, of each arm; unless they are warm, each runs once before."""
    for arm in () if warm else arms.values():
        arm()
        arm.cpu.clear()
    return in_both_orders(arms, ROUNDS), {name: tuple(arm.cpu) for name, arm in arms.items()}


def _added(taken: Mapping[int, Taken]) -> dict[str, dict[int, float]]:
    """Arm → size → seconds over the arm without a pack."""
    names = [name for name in next(iter(taken.values())) if name != NONE]
    return {
        name: {size: median(arms[name]) - median(arms[NONE]) for size, arms in taken.items()}
        for name in names
    }


class Arm:
    """Previews of one kind, which remember what CPU they took in all processes that they started."""

    def __init__(self, preview: Callable[[], float]) -> None:
        self._preview = preview
        self.cpu: list[float] = []

    def __call__(self) -> float:
        before = _cpu()
        seconds = self._preview()
        self.cpu.append(_cpu() - before)
        return seconds


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def pack_of(folder: Path, name: str) -> Path:
    """Write the pack of an arm; returns its folder."""
    pack = folder / re.sub(r"\W+", "-", name)  # a comma would separate two packs
    pack.mkdir()
    runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    (pack / "PulumiPolicy.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    (pack / "__main__.py").write_text(PACKS[name])
    return pack


def plot(name: str, wall: Mapping[int, Taken], cpu: Mapping[int, Taken]) -> None:
    """Draw what each arm adds by the number of resources: its time, and the CPU of all processes."""
    growth = {"time": _added(wall), "CPU of all processes": _added(cpu)}
    figure, panes = plt.subplots(1, len(growth), figsize=(9.6, 4))
    for axes, (clock, added) in zip(panes, growth.items(), strict=True):
        for arm, by_size in added.items():
            axes.plot(list(by_size), list(by_size.values()), marker="o", label=arm)
        axes.axhline(0, color="grey", linewidth=0.5)
        axes.set(xlabel="resources", ylabel=f"seconds added: {clock}", xlim=(0, None))
        axes.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / f"{name}.svg", metadata={"Date": None})
    plt.close(figure)
    (RESULTS / f"{name}-growth.json").write_text(json.dumps(growth, indent=1) + "\n")
