"""What the policies add to a preview, against none and against packs that have no rules."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt
import yaml

from benchmarks.figures import RESULTS, Figure, Samples, there_and_back
from infra.artifacts import ROOT
from local.paths import Paths
from rehearsal.standin import StandIn
from trainyard.session import Session

SIZES = (500, 1000, 2000)
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


def measure() -> list[Figure]:
    """Time all arms at each size, and plot how what they add grows."""
    wall: dict[int, dict[str, tuple[float, ...]]] = {}
    cpu: dict[int, dict[str, float]] = {}
    with _project() as (preview, packs):
        for size in SIZES:
            arms = {name: _Arm(preview, size, *options) for name, options in packs.items()}
            for arm in arms.values():
                arm()  # not counted
                arm.cpu.clear()
            wall[size] = there_and_back(arms, ROUNDS)
            cpu[size] = {name: median(arm.cpu) for name, arm in arms.items()}
    _plot(
        _added(
            {size: {name: median(taken) for name, taken in by_name.items()} for size, by_name in wall.items()}
        ),
        _added(cpu),
    )
    largest = SIZES[-1]
    taken = wall[largest]
    per_resource = tuple(
        1000 * (a - b) / largest for a, b in zip(sorted(taken[WHOLE]), sorted(taken[NONE]), strict=True)
    )
    claim = f"preview of {largest} resources under all policies"
    ours = Samples(WHOLE, "s", taken[WHOLE])
    return [
        Figure(claim, ours, at_most=1.15, peer=Samples(NONE, "s", taken[NONE])),
        Figure("added per resource", Samples(WHOLE, "ms", per_resource), at_most=1.0),
        *(
            Figure(claim, ours, at_most=1.15, peer=Samples(name, "s", taken[name]))
            for name in (NO_RULES, STANDARD)
        ),
    ]


def _added(by_size: Mapping[int, Mapping[str, float]]) -> dict[str, dict[int, float]]:
    """Arm → size → seconds over the arm without a pack."""
    names = (WHOLE, NO_RULES, STANDARD)
    return {name: {size: taken[name] - taken[NONE] for size, taken in by_size.items()} for name in names}


class _Arm:
    """Previews of one kind, which remember what CPU they took in all processes that they started."""

    def __init__(self, preview: Callable[..., float], size: int, *options: str) -> None:
        self._preview, self._size, self._options = preview, size, options
        self.cpu: list[float] = []

    def __call__(self) -> float:
        before = _cpu()
        seconds = self._preview("preview", *self._options, num_resources=self._size)
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


def _plot(wall: Mapping[str, Mapping[int, float]], cpu: Mapping[str, Mapping[int, float]]) -> None:
    figure, panes = plt.subplots(1, 2, figsize=(9, 4), sharex=True)
    for axes, what, added in zip(panes, ("time", "CPU of all processes"), (wall, cpu), strict=True):
        for name, by_size in added.items():
            axes.plot(list(by_size), list(by_size.values()), marker="o", label=name)
        axes.set(xlabel="resources", ylabel=f"seconds added: {what}", ylim=(0, None), xlim=(0, None))
        axes.legend()
    figure.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "policies.svg", metadata={"Date": None})
    plt.close(figure)
    growth = {"time": wall, "CPU of all processes": cpu}
    (RESULTS / "policies-growth.json").write_text(json.dumps(growth, indent=1) + "\n")
