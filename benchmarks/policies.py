"""What the policies add to a preview, against none and against packs that have no rules.

Of two programs with about 2,000 resources: a plain one of buckets with their locks, which cost the engine and
the program least, and a stack of ours, with its charts and components, whose pools are multiplied.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt
import yaml

from benchmarks.arena import quiet
from benchmarks.figures import RESULTS, Figure, Samples, there_and_back
from benchmarks.pools import STACK, attached, generated, our_program
from infra.artifacts import ROOT
from local.paths import Paths
from rehearsal.standin import StandIn
from trainyard.session import Session

SIZES = (500, 1000, 2000)
POOLS = 900
"""In our stack: each is a node group and its launch template."""
ROUNDS = 2
"""There and back, so four samples of each arm at every size."""
PROGRAM = """
import os, pulumi
region = {"region": "eu-west-1"}
for index in range(int(os.environ["NUM_RESOURCES"]) // 4):
    name = f"data-{index}"
    tags = {"owner": "ml", "cost-center": "4711"}
    bucket = pulumi.CustomResource("aws:s3/bucket:Bucket", name, {"acl": "private", "tags": tags, **region})
    default = {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": "alias/data"}
    deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": "*",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    for kind, props in {
        "ServerSideEncryptionConfiguration": {"rules": [{"applyServerSideEncryptionByDefault": default}]},
        "PublicAccessBlock": {"blockPublicAcls": True, "blockPublicPolicy": True,
                              "ignorePublicAcls": True, "restrictPublicBuckets": True},
        "Policy": {"policy": {"Version": "2012-10-17", "Statement": [deny]}},
    }.items():
        props |= {"bucket": bucket.id, **region}
        pulumi.CustomResource(f"aws:s3/bucket{kind}:Bucket{kind}", name, props)
"""
"""Buckets with their three locks."""
CONFIG = {"trainyard:residency": {"allowed": ["eu-*"]}}
BUCKETS, STACK_OF_OURS = "buckets with their locks", "a stack of ours"

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
"""What the engine and a server cost before anything is judged."""


Taken = Mapping[str, tuple[float, ...]]
"""Arm → seconds of each repeat."""


def measure() -> list[Figure]:
    """Time all arms at each size, and plot how what they add grows."""
    wall: dict[int, Taken] = {}
    cpu: dict[int, Taken] = {}
    with _project() as (preview, packs):
        for size in SIZES:
            arms = {
                name: _Arm(partial(preview, "preview", *options, num_resources=size))
                for name, options in packs.items()
            }
            wall[size], cpu[size] = _take(arms, warm=size != SIZES[0])
    plot(wall, cpu)
    size = SIZES[-1]
    return [
        *wall_figures(size, BUCKETS, wall[size]),
        *cpu_figures(size, BUCKETS, cpu[size]),
        *own_stack(POOLS),
    ]


def own_stack(pools: int) -> list[Figure]:
    """Time previews of the stack `aws-dev` with so many pools more, by the engine that `up` uses."""
    with tempfile.TemporaryDirectory(prefix="trainyard-policies-") as name, attached(Path(name)) as tools:
        engine = our_program(Path(name), generated(pools), tools)
        packs: dict[str, tuple[Path, ...]] = {
            WHOLE: (ROOT / "policies",),
            NO_RULES: (_pack(Path(name), NO_RULES),),
            NONE: (),
        }
        sizes: set[int] = set()

        def preview(packs: Sequence[Path]) -> float:
            result = engine.preview(STACK, quiet(), policy_packs=packs)
            sizes.add(len(result.announced))
            return result.seconds

        wall, cpu = _take({name: _Arm(partial(preview, given)) for name, given in packs.items()})
    (size,) = sizes
    return [*wall_figures(size, STACK_OF_OURS, wall), *cpu_figures(size, STACK_OF_OURS, cpu)]


def _take(arms: Mapping[str, _Arm], warm: bool = False) -> tuple[Taken, Taken]:
    """Time by the clock, and of CPU, of each arm; unless they are warm, each runs once before."""
    for arm in () if warm else arms.values():
        arm()
        arm.cpu.clear()
    return there_and_back(arms, ROUNDS), {name: tuple(arm.cpu) for name, arm in arms.items()}


def wall_figures(size: int, what: str, taken: Taken) -> list[Figure]:
    """What the targets speak of: a busy machine spoils it."""
    ours = Samples(WHOLE, "s", taken[WHOLE])
    pairs = zip(sorted(taken[WHOLE]), sorted(taken[NONE]), strict=True)
    per_resource = tuple(1000 * (guarded - bare) / size for guarded, bare in pairs)
    claim = f"preview of {size} resources ({what}) under all policies"
    return [
        Figure(claim, ours, at_most=1.15, peer=Samples(NONE, "s", taken[NONE])),
        Figure(f"added per resource ({what})", Samples(WHOLE, "ms", per_resource), at_most=1.0),
    ]


def cpu_figures(size: int, what: str, taken: Taken) -> list[Figure]:
    """CPU of all processes, which neighbours change little, against no pack and packs without rules."""
    ours = Samples(WHOLE, "s", taken[WHOLE])
    claim = f"CPU of a preview of {size} resources ({what}) under all policies"
    return [
        Figure(claim, ours, at_most=1.15, peer=Samples(name, "s", taken[name]))
        for name in (NONE, NO_RULES, STANDARD)
        if name in taken
    ]


def _added(taken: Mapping[int, Taken]) -> dict[str, dict[int, float]]:
    """Arm → size → seconds over the arm without a pack."""
    return {
        name: {size: median(arms[name]) - median(arms[NONE]) for size, arms in taken.items()}
        for name in (WHOLE, NO_RULES, STANDARD)
    }


class _Arm:
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


@contextmanager
def _project() -> Iterator[tuple[Callable[..., float], Mapping[str, tuple[str, ...]]]]:
    """A project over a stand-in for AWS; yields what times one preview of it, and each arm's options."""
    with tempfile.TemporaryDirectory() as name, StandIn(["aws"]) as stand_in:
        folder = Path(name)
        toolchain = Session("local", replace(Paths.from_environment(), state=folder / "state")).toolchain
        toolchain.ensure("binary/pulumi", "plugin/python-exec")
        runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "buckets", "runtime": runtime}))
        (folder / "Pulumi.bench.yaml").write_text(yaml.safe_dump({"config": CONFIG}))
        (folder / "__main__.py").write_text(PROGRAM)
        (folder / "backend").mkdir()
        environment = {
            **os.environ,
            **stand_in.environment(),
            "PATH": f"{toolchain.paths.bin}{os.pathsep}{os.environ['PATH']}",
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_BACKEND_URL": (folder / "backend").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "bench",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
        }

        def run(*command: str, num_resources: int = 0) -> float:
            started = time.monotonic()
            subprocess.run(
                ["pulumi", "--non-interactive", *command, "--stack", "bench"],
                cwd=folder,
                env={**environment, "NUM_RESOURCES": str(num_resources)},
                check=True,
                capture_output=True,
            )
            return time.monotonic() - started

        run("stack", "init")
        packs = {WHOLE: ROOT / "policies", **{name: _pack(folder, name) for name in PACKS}}
        yield run, {**{name: ("--policy-pack", str(pack)) for name, pack in packs.items()}, NONE: ()}


def _pack(folder: Path, name: str) -> Path:
    pack = folder / re.sub(r"\W+", "-", name)  # a comma would part two packs
    pack.mkdir()
    runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    (pack / "PulumiPolicy.yaml").write_text(yaml.safe_dump({"runtime": runtime}))
    (pack / "__main__.py").write_text(PACKS[name])
    return pack


def plot(*clocks: Mapping[int, Taken]) -> None:
    """Draw what each arm adds by the number of resources: its time, and the CPU of all processes."""
    names = ("time", "CPU of all processes")[-len(clocks) :]
    growth = {name: _added(taken) for name, taken in zip(names, clocks, strict=True)}
    figure, panes = plt.subplots(1, len(clocks), figsize=(4.8 * len(clocks), 4), squeeze=False)
    for axes, (name, added) in zip(panes[0], growth.items(), strict=True):
        for arm, by_size in added.items():
            axes.plot(list(by_size), list(by_size.values()), marker="o", label=arm)
        axes.set(xlabel="resources", ylabel=f"seconds added: {name}", ylim=(0, None), xlim=(0, None))
        axes.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "policies.svg", metadata={"Date": None})
    plt.close(figure)
    (RESULTS / "policies-growth.json").write_text(json.dumps(growth, indent=1) + "\n")
