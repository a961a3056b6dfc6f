"""Baseline of the preview benchmarks: writes a plain Pulumi project that registers the same resources as a
stack, and checks that both plans have the same number of resources of each type.

Its program has no spec, checks or charts.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from pulumi import _types

from engine.engine import Engine
from engine.events import OperationResult
from engine.paths import Paths
from infra.common.artifacts import ROOT
from infra.stackfile import Stack
from rehearsal import sdk
from tests.infra.plan import plan
from trainyard.stack.session import Session

PROGRAM = """
import importlib, json, pathlib
import pulumi

recorded = json.loads((pathlib.Path(__file__).parent / "resources.json").read_text())
config, providers = {}, {}
for kind, name, inputs, module, own_class in recorded:
    package = kind.partition(":")[0]
    if kind == "trainyard:local:EmbeddedCluster":
        cluster = pulumi.CustomResource(kind, name, {**inputs, "kubeconfig": None})
        config = {"kubeconfig": cluster.kubeconfig}
    elif kind == "trainyard:local:ReadyNodes":
        pulumi.CustomResource(kind, name, inputs)
    elif kind.startswith("trainyard:kubernetes:"):
        pulumi.CustomResource(kind, name, {**inputs, **config})
    elif package == "trainyard":
        pulumi.ComponentResource(kind, name, inputs)
    else:
        if package not in providers:
            given = config if package == "kubernetes" else {}
            providers[package] = pulumi.ProviderResource(package, package, given)
        options = pulumi.ResourceOptions(provider=providers[package])
        if module:
            getattr(importlib.import_module(module), own_class)(name, opts=options, **inputs)
        else:
            pulumi.CustomResource(kind, name, inputs, options)
"""


def write_project(folder: Path, stack: str, data: Mapping[str, Any], main: str = "") -> Path:
    """Write a project with one stack file, its program in `main`, and the clone's tools; return it."""
    (folder / "stacks").mkdir(parents=True)
    (folder / "stacks" / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump(dict(data)))
    runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    project = {"name": folder.name, "runtime": runtime, "stackConfigDir": "stacks"}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({**project, **({"main": main} if main else {})}))
    (folder / ".trainyard").symlink_to(ROOT / ".trainyard")
    return folder


def write_bare(folder: Path, name: str, stack: Stack) -> Path:
    """Write the bare program of a stack, as a project with a stack `name`; return the folder.

    Resources of a cloud are declared by the classes of its SDK, as whoever writes such a program does it.
    """
    write_project(folder, name, {"config": {}})
    with tempfile.TemporaryDirectory() as rendered:
        recorded = plan(stack, Path(rendered)).resources
    resources = [
        (each.type, each.name, *_spelled(each.type, each.inputs))
        for each in recorded
        if not each.type.startswith("pulumi:")
    ]
    # The cluster is first, since all others need its kubeconfig.
    resources.sort(key=lambda each: each[0] != "trainyard:local:EmbeddedCluster")
    (folder / "resources.json").write_text(json.dumps(resources))
    (folder / "__main__.py").write_text(PROGRAM)
    return folder


def _spelled(kind: str, inputs: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str]:
    """Return the inputs under the SDK's Python names, with the SDK's module and class.

    Of Kubernetes and our own types the inputs are returned as they are, and two empty strings.
    """
    if kind.partition(":")[0] in ("trainyard", "kubernetes"):
        return inputs, "", ""
    own_class = sdk.resource_of(kind)
    names = _types.input_type_py_to_pulumi_names(sdk.arguments_of(kind))
    spelled = {python: inputs[name] for python, name in names.items() if name in inputs}
    assert len(spelled) == len(inputs), f"{kind}: {inputs.keys() - set(names.values())} got no name"
    return spelled, own_class.__module__, own_class.__name__


def engine(folder: Path, environment: Mapping[str, str]) -> Engine:
    """Return an engine on a project, its state beside the program."""
    paths = replace(Paths.from_environment(), repository=folder, state=folder / "state", stacks_folder=None)
    return _engine(paths, environment)


def engine_of_repository(session: Session) -> Engine:
    """Return an engine on this repository's program."""
    return _engine(replace(session.paths, repository=ROOT), session.toolchain.environment())


def _engine(paths: Paths, environment: Mapping[str, str]) -> Engine:
    paths.engine.mkdir(parents=True, exist_ok=True)
    home = str(paths.engine / "home")
    return Engine(paths, {**environment, "PULUMI_BACKEND_URL": paths.engine.as_uri(), "PULUMI_HOME": home})


def check_same(ours: OperationResult, bare: OperationResult) -> None:
    """Check that both arms register the same resources. Raises AssertionError with the differences."""
    types = [Counter(state["type"] for state in each.announced) for each in (ours, bare)]
    only = types[0] - types[1], types[1] - types[0]
    assert only == (Counter(), Counter()), (
        f"only ours: {dict(only[0])}; only the bare program's: {dict(only[1])}"
    )
