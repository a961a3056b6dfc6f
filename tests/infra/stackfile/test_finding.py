"""How validators are found: every public function of a module runs, and a misspelt parameter is an error."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from infra.common.artifacts import ROOT
from infra.common.target_registry import TARGETS, target_of
from infra.stackfile.finding import Checks, Finding, run
from infra.stackfile.source import SpecSource
from infra.stackfile.stack import Stack

SOURCE = SpecSource("test")
VALIDATORS = sorted(ROOT.glob("infra/**/*validators.py"))


def pools_are_right(pools: tuple[str, ...]) -> Iterator[Finding]:
    yield ("pools",), "something", "nothing", "remove it"


def pools_are_wrong(pool: tuple[str, ...]) -> Iterator[Finding]:
    yield ("pools",), "something", "nothing", "remove it"


def a_shared_check(pools: tuple[str, ...]) -> Iterator[Finding]:
    yield ("pools",), "something else", "nothing", "remove it"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("made_up_validators")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_a_check_with_a_misspelt_section_stops_every_run() -> None:
    """It does so even if a section is invalid: it is an error of the code, not of the user's file."""
    for sections in ({"pools": ()}, {}):
        with pytest.raises(
            TypeError, match=r"pools_are_wrong asks for a section 'pool'; did you mean 'pools'"
        ):
            run([pools_are_wrong], {"pools", "queues"}, sections, SOURCE)


def test_a_check_runs_only_if_its_sections_are_valid() -> None:
    assert len(run([pools_are_right], {"pools", "queues"}, {"pools": ()}, SOURCE)) == 1
    assert not run([pools_are_right], {"pools", "queues"}, {"queues": ()}, SOURCE)


def test_every_public_function_of_a_module_is_a_check_wherever_it_stands(module: ModuleType) -> None:
    checks = Checks(module.__name__, a_shared_check)
    for name in ("pools_are_right", "_helper"):
        exec(f"def {name}(pools): return iter(())", vars(module))
    module.imported = a_shared_check  # type: ignore[attr-defined]
    assert [check.__name__ for check in checks] == ["pools_are_right", "a_shared_check"]


@pytest.mark.parametrize("kind", TARGETS)
def test_a_target_has_checks_and_each_asks_for_sections_of_a_stack(kind: str) -> None:
    checks = list(target_of(kind).validators)
    assert checks
    assert len({check.__name__ for check in checks}) == len(checks)
    assert not run(checks, Stack.model_fields, {}, SOURCE)


@pytest.mark.parametrize("file", VALIDATORS, ids=lambda file: str(file.relative_to(ROOT / "infra")))
def test_every_private_function_beside_the_checks_is_used(file: Path) -> None:
    """Else a check whose name begins with `_` would never run."""
    tree = ast.parse(file.read_text())
    private = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name[0] == "_"}
    assert private <= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
