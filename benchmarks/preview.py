"""Preview of the local stack against a bare Pulumi program that registers the same resources."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from benchmarks.arena import Arena, arena
from benchmarks.figures import Figure, Samples, alternating
from infra.artifacts import ROOT
from tests.infra.plan import plan

ROUNDS = 3
PROGRAM = """
import json, pathlib, pulumi
recorded = json.loads((pathlib.Path(__file__).parent / "resources.json").read_text())
provider = None
for kind, name, inputs in recorded:
    if kind == "trainyard:local:EmbeddedCluster":
        cluster = pulumi.CustomResource(kind, name, {**inputs, "kubeconfig": None})
        provider = pulumi.ProviderResource("kubernetes", name, {"kubeconfig": cluster.kubeconfig})
for kind, name, inputs in recorded:
    if kind.startswith("kubernetes:"):
        pulumi.CustomResource(kind, name, inputs, pulumi.ResourceOptions(provider=provider))
    elif kind == "trainyard:kubernetes:CustomResourceDefinitions":
        pulumi.CustomResource(kind, name, {**inputs, "kubeconfig": cluster.kubeconfig})
    elif kind != "trainyard:local:EmbeddedCluster":
        pulumi.ComponentResource(kind, name, inputs)
"""
"""As small as a program can be: no spec, no checks, no charts, no dependencies."""


def measure() -> list[Figure]:
    """Time `pulumi preview` of both, after one of each that is not counted."""
    with arena() as place, tempfile.TemporaryDirectory() as folder:
        place.session.toolchain.ensure()
        bare = _bare_program(Path(folder), place)
        ours, peer = _preview(ROOT, "local", place), _preview(bare, "local", place)
        ours(), peer()
        taken, against = alternating(ours, peer, ROUNDS)
    return [
        Figure(
            "preview of the local stack",
            Samples("trainyard", "s", taken),
            at_most=1.15,
            peer=Samples("bare program", "s", against),
        )
    ]


def _bare_program(folder: Path, place: Arena) -> Path:
    with tempfile.TemporaryDirectory() as rendered:
        recorded = plan(place.session.stack, Path(rendered))
    resources = [
        (each.type, each.name, each.inputs)
        for each in recorded.resources
        if not each.type.startswith("pulumi:")
    ]
    (folder / "resources.json").write_text(json.dumps(resources))
    (folder / "__main__.py").write_text(PROGRAM)
    runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "bare", "runtime": runtime}))
    return folder


def _preview(project: Path, stack: str, place: Arena) -> Callable[[], float]:
    environment = {**os.environ, **place.session.toolchain.environment()}
    config = place.state / f"Pulumi.{project.name}.yaml"
    source = ROOT / "stacks" / f"Pulumi.{stack}.yaml"
    config.write_text(source.read_text() if project == ROOT else "")

    def run(*command: str) -> None:
        subprocess.run(
            ["pulumi", "--non-interactive", *command],
            cwd=project,
            env=environment,
            check=True,
            capture_output=True,
        )

    run("stack", "init", stack, "--no-select", "--config-file", str(config))

    def timed() -> float:
        started = time.monotonic()
        run("preview", "--stack", stack, "--config-file", str(config))
        return time.monotonic() - started

    return timed
