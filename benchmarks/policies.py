"""What the policies add to a preview: a program of many buckets, with the pack against without."""

from __future__ import annotations

import json
import os
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

from benchmarks.figures import RESULTS, Figure, Samples, alternating
from infra.artifacts import ROOT
from local.paths import Paths
from rehearsal.standin import StandIn
from trainyard.session import Session

SIZES = (500, 1000, 2000)
ROUNDS = 2
"""Of A B B A, so four samples of each arm at every size."""
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
    wall: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {}
    cpu: dict[int, float] = {}
    with _project() as preview:
        for size in SIZES:
            guarded, bare = (
                _Arm(preview, size, "--policy-pack", str(ROOT / "policies")),
                _Arm(preview, size),
            )
            for arm in (guarded, bare):
                arm()  # not counted
                arm.cpu.clear()
            wall[size] = alternating(guarded, bare, ROUNDS)
            cpu[size] = median(guarded.cpu) - median(bare.cpu)
    added = {size: median(ours) - median(peer) for size, (ours, peer) in wall.items()}
    _plot({"time": added, "CPU of all processes": cpu})
    largest = SIZES[-1]
    ours, peer = wall[largest]
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


class _Arm:
    """Previews of one kind, which remember what CPU they took in all processes that they started."""

    def __init__(self, preview: Callable[..., float], size: int, *options: str) -> None:
        self._preview, self._size, self._options = preview, size, options
        self.cpu: list[float] = []

    def __call__(self) -> float:
        before = _cpu()
        seconds = self._preview("preview", *self._options, num_buckets=self._size)
        self.cpu.append(_cpu() - before)
        return seconds


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def _project() -> Iterator[Callable[..., float]]:
    """A project over a stand-in for AWS; yields what times one preview of it."""
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


def _plot(added: Mapping[str, Mapping[int, float]]) -> None:
    figure, axes = plt.subplots(figsize=(6, 4))
    for name, by_size in added.items():
        axes.plot(list(by_size), list(by_size.values()), marker="o", label=name)
    axes.set(xlabel="resources", ylabel="seconds added by the policies", ylim=(0, None), xlim=(0, None))
    axes.legend()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "policies.svg", metadata={"Date": None})
    plt.close(figure)
    (RESULTS / "policies-growth.json").write_text(json.dumps(added, indent=1) + "\n")
