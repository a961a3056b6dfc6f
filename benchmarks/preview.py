"""Preview of the local stack against a bare Pulumi program that registers the same resources."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import yaml

from benchmarks.arena import Arena, arena, quiet
from benchmarks.figures import Figure, Samples, alternating
from infra.artifacts import ROOT
from local.engine import Engine
from local.paths import Paths
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
    """Time the engine's preview of both, after one of each that is not counted."""
    with arena() as place, tempfile.TemporaryDirectory() as folder:
        place.session.toolchain.ensure()
        ours, peer = _preview(place.session.paths, place), _preview(_bare_program(Path(folder), place), place)
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


def _bare_program(folder: Path, place: Arena) -> Paths:
    """Write the program, with a state of its own and this clone's tools."""
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
    project = {"name": "bare", "runtime": runtime, "stackConfigDir": "stacks"}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    (folder / "stacks").mkdir()
    (folder / "stacks" / "Pulumi.local.yaml").write_text("config: {}\n")
    (folder / ".trainyard").symlink_to(ROOT / ".trainyard")
    return replace(place.session.paths, repository=folder, state=folder / "state", stacks_folder=None)


def _preview(paths: Paths, place: Arena) -> Callable[[], float]:
    environment = {
        **place.session.toolchain.environment(),
        "PULUMI_BACKEND_URL": paths.engine.as_uri(),
        "PULUMI_HOME": str(paths.engine / "home"),
    }
    paths.engine.mkdir(parents=True, exist_ok=True)
    engine = Engine(paths, environment)
    return lambda: engine.preview("local", quiet()).seconds
