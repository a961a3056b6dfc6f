"""Benchmark: wall and CPU time of previews of an AWS stack of about 2,000 resources under all policies,
against previews with a pack without rules and with no pack.

The stack is `aws-dev` with generated pools. `benchmarks.buckets` measures another program with the arms and
figures of this module.
"""

from __future__ import annotations

import re
import resource
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import yaml

from benchmarks.arena import quiet
from benchmarks.figures import Figure, Repeats, in_both_orders
from benchmarks.pools import STACK, attached, generated, our_program
from infra.common.artifacts import ROOT

POOLS = 430
"""Each pool adds four resources to about 280, so the stack has 1,998."""
ROUNDS = 2
"""Rounds; each takes both orders of the arms, so each arm has four samples."""
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
    """Time previews with each pack, and with none."""
    with tempfile.TemporaryDirectory(prefix="trainyard-policies-") as name, attached(Path(name)) as tools:
        engine = our_program(Path(name), generated(POOLS), tools)
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
    return figures("AWS stack", size, *taken)


def figures(what: str, size: int, wall: Taken, cpu: Taken) -> list[Figure]:
    """Return the figures of previews of so many resources."""
    claim = f"preview of {size} resources ({what}) under all policies"
    pairs = zip(sorted(wall[WHOLE]), sorted(wall[NONE]), strict=True)
    added = tuple(1000 * (guarded - bare) / size for guarded, bare in pairs)
    return [
        Figure(claim, _samples(WHOLE, wall), at_most=1.15, peer=_samples(NONE, wall)),
        Figure(f"added per resource, of {size} ({what})", Repeats(WHOLE, "ms", added), at_most=1.0),
        *(
            Figure(f"CPU of a {claim}", _samples(WHOLE, cpu), at_most=1.15, peer=_samples(name, cpu))
            for name in (NONE, NO_RULES, STANDARD)
            if name in cpu
        ),
    ]


def _samples(name: str, taken: Taken) -> Repeats:
    return Repeats(name, "s", taken[name])


def take(arms: Mapping[str, Arm]) -> tuple[Taken, Taken]:
    """Time by the clock, and of CPU, of each arm, after one run of each that is not counted."""
    for arm in arms.values():
        arm()
        arm.cpu.clear()
    return in_both_orders(arms, ROUNDS), {name: tuple(arm.cpu) for name, arm in arms.items()}


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
