"""The program's steps, so that the engine, tests and rehearsals take the same ones."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pulumi

from infra.artifacts import ROOT, Artifacts
from infra.outputs import stack_outputs
from infra.platform import Platform
from infra.providers.base import refuse_unsupported
from infra.providers.registry import cluster_class
from infra.spec import Stack, parse
from infra.spec.source import read


def load_stack(name: str) -> Stack:
    """Read the engine's configuration; where the stack file says the same, problems show its lines.

    Raises InputError with every problem.
    """
    configured = pulumi.Config("trainyard").require_object("stack")
    folder = Path(os.environ.get("TRAINYARD_STACKS") or ROOT / "stacks")
    file = folder / f"Pulumi.{name}.yaml"
    if file.exists():
        data, source = read(file)
        if data == configured:
            return parse(data, source)
    return parse(configured)


def declare(stack: Stack, artifacts: Artifacts) -> dict[str, Any]:
    """Declare every resource of the stack and return its outputs.

    Raises InputError for what the target lacks, MachineError for a chart or helm that is missing.
    """
    target = cluster_class(stack.provider.kind)
    refuse_unsupported(stack, target)
    cluster = target(stack, artifacts)
    Platform(stack, cluster, artifacts)
    return stack_outputs(stack, cluster)
