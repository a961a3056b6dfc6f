"""The layout of docs/dev/architecture.md: code for a target is in its folder; validating loads no SDK."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.common.target_registry import TARGETS, target_of
from tests.processes import capture

ROOT = Path(__file__).resolve().parent.parent
PRODUCTION = ("catalog", "engine", "infra", "local", "rehearsal", "trainyard")
KINDS = frozenset(TARGETS)
SPECS = frozenset(target_of(kind).spec.__name__ for kind in TARGETS)
SDKS = ("boto3", "botocore", "googleapiclient", "kubernetes", "pulumi")


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Yield the production modules outside of the targets' folders and of their fakes."""
    for package in PRODUCTION:
        for file in sorted((ROOT / package).rglob("*.py")):
            path = file.relative_to(ROOT)
            if path.parts[:2] in {("infra", "targets")} and path.parts[2] in KINDS:
                continue
            if path.parts[0] == "rehearsal" and KINDS & {path.parts[1], path.stem}:
                continue
            yield path, ast.parse(file.read_text(encoding="utf-8"))


def asked_by_class(tree: ast.Module) -> Iterator[str]:
    """Yield calls such as `isinstance(provider, AwsSpec)`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
            names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            yield from (f"{name}:{node.lineno}" for name in names & SPECS)


def asked_by_name(tree: ast.Module) -> Iterator[str]:
    """Yield conditions such as `kind == "aws"`, `kind in ("aws", "gcp")` and `case "aws":`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            sides: list[ast.expr] = [node.left, *node.comparators]
        elif isinstance(node, ast.MatchValue):
            sides = [node.value]
        else:
            continue
        for side in sides:
            parts = side.elts if isinstance(side, ast.Tuple | ast.List | ast.Set) else [side]
            for part in parts:
                if isinstance(part, ast.Constant) and part.value in KINDS:
                    yield f"{part.value}:{part.lineno}"


@pytest.mark.parametrize("asked", [asked_by_class, asked_by_name])
def test_no_code_outside_of_a_targets_folder_checks_the_targets_kind(asked: object) -> None:
    assert callable(asked)
    found = {str(path): list(asked(tree)) for path, tree in modules()}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("kind", TARGETS)
def test_validating_a_stack_loads_no_sdk(kind: str) -> None:
    program = (
        "import sys; from pathlib import Path; from infra.stackfile import load;"
        f" load(Path('stacks/Pulumi.{kind}.yaml'));"
        f" print([name for name in {SDKS!r} if name in sys.modules])"
    )
    done = capture([sys.executable, "-c", program], check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_the_files_of_the_usual_changes_exist() -> None:
    """A folder stands for any file in it."""
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("## Ten usual changes")[2]
    named = {
        text.replace("<kind>", "aws").replace("<topic>", "spot") for text in re.findall(r"`([^` ]+)`", table)
    }
    assert len(named) > 30
    assert not [name for name in named if not (ROOT / name).exists()]
