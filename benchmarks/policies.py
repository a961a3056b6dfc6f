"""What the policies add to a preview: a program of many buckets, with the pack against without."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import matplotlib.pyplot as plt
import yaml

from benchmarks.arena import arena
from benchmarks.figures import RESULTS, Figure, Samples, alternating
from infra.artifacts import ROOT
from rehearsal.standin import StandIn

SIZES = (250, 500, 1000, 2000)
PROGRAM = """
import os, pulumi
for index in range(int(os.environ["NUM_BUCKETS"])):
    pulumi.CustomResource("aws:s3/bucket:Bucket", f"bucket-{index}", {
        "acl": "private",
        "forceDestroy": False,
        "lifecycleRules": [{"enabled": True, "id": "old", "expiration": {"days": 30}}],
        "region": "eu-west-1",
        "tags": {"owner": "ml", "cost-center": "4711"},
    })
"""
CONFIG = {"trainyard:residency": {"allowed": ["eu-*"]}}


def measure() -> list[Figure]:
    """Time both arms at each size, and plot how the difference grows."""
    samples = {}
    with _project() as preview:
        for size in SIZES:
            guarded, bare = _arm(preview, size, "--policy-pack", str(ROOT / "policies")), _arm(preview, size)
            guarded(), bare()
            samples[size] = alternating(guarded, bare)
    added = {size: median(ours) - median(peer) for size, (ours, peer) in samples.items()}
    _plot(added)
    largest = SIZES[-1]
    ours, peer = samples[largest]
    per_resource = tuple(1000 * (a - b) / largest for a, b in zip(sorted(ours), sorted(peer), strict=True))
    return [
        Figure(
            f"preview of {largest} resources under all policies",
            Samples("with the pack", "s", ours),
            at_most=1.15,
            peer=Samples("without", "s", peer),
        ),
        Figure("added per resource", Samples("with the pack", "ms", per_resource), at_most=1.0),
    ]


@contextmanager
def _project() -> Iterator[Callable[..., float]]:
    """A project over a stand-in for AWS; yields what times one preview of it."""
    with arena() as place, tempfile.TemporaryDirectory() as name, StandIn(["aws"]) as stand_in:
        place.session.toolchain.ensure("binary/pulumi")
        folder = Path(name)
        runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
        (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "buckets", "runtime": runtime}))
        (folder / "Pulumi.bench.yaml").write_text(yaml.safe_dump({"config": CONFIG}))
        (folder / "__main__.py").write_text(PROGRAM)
        environment = {**os.environ, **place.session.toolchain.environment(), **stand_in.environment()}

        def run(*command: str, num_buckets: int = 0) -> float:
            started = time.monotonic()
            subprocess.run(
                ["pulumi", "--non-interactive", *command, "--stack", "bench"],
                cwd=folder,
                env={**environment, "NUM_BUCKETS": str(num_buckets)},
                check=True,
                capture_output=True,
            )
            return time.monotonic() - started

        run("stack", "init")
        yield run


def _arm(preview: Callable[..., float], size: int, *options: str) -> Callable[[], float]:
    return lambda: preview("preview", *options, num_buckets=size)


def _plot(added: dict[int, float]) -> None:
    figure, axes = plt.subplots(figsize=(6, 4))
    axes.plot(list(added), list(added.values()), marker="o")
    axes.set(xlabel="resources", ylabel="seconds added by the policies", ylim=(0, None), xlim=(0, None))
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "policies.svg")
    plt.close(figure)
