"""Benchmark: time to preview the local stack from a YAML program with the component package, against the
stack program of this repository.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import yaml

from benchmarks.arena import arena, quiet
from benchmarks.bare import check_same, engine, engine_of_repository, write_project
from benchmarks.figures import Figure, Repeats, alternating
from engine.events import OperationResult
from infra.common.artifacts import ROOT
from infra.stackfile.source import STACK_KEY
from trainyard.stack.parts import PACKAGE_PARTS

ROUNDS = 3
COMPONENT = "trainyard:index:Cluster"


def write_program(folder: Path, stack_file: Path) -> Path:
    """Write what the templates have: a YAML program that hands a stack file to the component."""
    config = {STACK_KEY: yaml.safe_load(stack_file.read_text())["config"][STACK_KEY]}
    write_project(folder, "local", {"config": config})
    program = {
        "name": folder.name,
        "runtime": "yaml",
        "stackConfigDir": "stacks",
        "plugins": {"providers": [{"name": "trainyard", "path": str(ROOT / ".trainyard/bin")}]},
        "resources": {"cluster": {"type": COMPONENT, "properties": {"stack": f"${{{STACK_KEY}}}"}}},
    }
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(program))
    return folder


def without_component(result: OperationResult) -> OperationResult:
    """Remove the component itself, since its parts are compared."""
    parts = tuple(each for each in result.announced if each["type"] != COMPONENT)
    return replace(result, announced=parts)


def measure() -> list[Figure]:
    """Time the engine's preview of both in the order A B B A, after one of each that is not counted."""
    with arena() as bench, tempfile.TemporaryDirectory() as folder:
        session = bench.session
        session.toolchain.ensure()
        session.toolchain.ensure(*PACKAGE_PARTS)
        environment = session.toolchain.environment()
        program = engine_of_repository(session)
        package = engine(write_program(Path(folder) / "package", session.stack_file), environment)
        through = without_component(package.preview("local", quiet()))
        check_same(through, program.preview("local", quiet()))
        taken, against = alternating(
            lambda: package.preview("local", quiet()).seconds,
            lambda: program.preview("local", quiet()).seconds,
            ROUNDS,
        )
    return [
        Figure(
            "preview of the local stack through the package",
            Repeats("YAML program with the component", "s", taken),
            at_most=1.1,
            peer=Repeats("our program", "s", against),
        )
    ]
