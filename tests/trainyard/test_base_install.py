"""The distribution without an extra: what its commands import, and what they say of a missing extra."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from engine.paths import REPOSITORY
from infra.errors import ExitCode

NEED_THE_ENGINE = {
    "trainyard.commands.deploy_role",
    "trainyard.commands.doctor",
    "trainyard.commands.environment",
    "trainyard.commands.rehearse.",
    "trainyard.component.",
    "trainyard.images.images",
    "trainyard.images.lock",
    "trainyard.stack.find",
    "trainyard.stack.preview",
    "trainyard.stack.schema",
}
"""Modules that import packages of the extra `local`."""
HIDE = """
import re, sys
from importlib.metadata import packages_distributions, requires
import trainyard_start
trainyard_start.put_tree_first()
from packaging.requirements import Requirement

def needed(name):
    for each in map(Requirement, requires(name) or ()):
        if each.marker is None or each.marker.evaluate({"extra": ""}):
            yield re.sub(r"[-_.]+", "-", each.name).lower()

base = set(needed("trainyard"))
found = {"trainyard", "trainyard-train", *base}
while more := {other for name in found - {"trainyard-train"} for other in needed(name)} - found:
    found |= more

of = packages_distributions()
distributions_of = lambda top: {re.sub(r"[-_.]+", "-", each).lower() for each in of.get(top, ())}

class Hiding:
    def __init__(self, finder):
        self.finder = finder
    def __getattr__(self, name):
        return getattr(self.finder, name)
    def find_spec(self, name, path=None, target=None):
        names = distributions_of(name.partition(".")[0])
        return None if names and not names & found else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(each) for each in sys.meta_path]
"""
"""Hides every distribution that the base does not need."""
IMPORT = """
import ast, importlib, json, pathlib, pkgutil
import trainyard
lacks = {}
for module in pkgutil.walk_packages(trainyard.__path__, "trainyard.", onerror=lambda _: None):
    if not module.name.endswith("__main__") and not f"{module.name}.".startswith(tuple(sys.argv[1:])):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            lacks[module.name] = error.name
used = set()
for module in [*sys.modules.values()]:
    file = getattr(module, "__file__", None) or ""
    if file.startswith(trainyard_start.ROOT) and "site-packages" not in file:
        for node in ast.walk(ast.parse(pathlib.Path(file).read_text())):
            names = [each.name for each in getattr(node, "names", ())] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            used |= set().union(*(distributions_of(name.partition(".")[0]) for name in names))
print(json.dumps({"lacks": lacks, "unused": sorted(base - used)}))
"""


def run_python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}){HIDE}{code}"]
    return subprocess.run([*command, *words], capture_output=True, text=True)


@pytest.fixture(scope="module")
def imported() -> dict[str, object]:
    done = run_python(IMPORT, *NEED_THE_ENGINE)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_members_commands_need_no_extra(imported: dict[str, object]) -> None:
    assert imported["lacks"] == {}


def test_the_base_has_no_package_that_its_commands_do_not_import(
    imported: dict[str, object],
) -> None:
    assert imported["unused"] == []


def test_a_command_without_its_extra_names_it() -> None:
    refused = run_python("from trainyard.cli import main; main()", "deploy-role", "-s", "aws")
    assert refused.returncode == ExitCode.HOST
    path, got, allowed, fix = refused.stderr.splitlines()[1:]
    assert path == "packages of the extra `local`"
    assert got == "  got:     No module named 'pulumi'"
    assert allowed.startswith("  allowed: pulumi==3.230.0, pulumi-kubernetes==")
    assert fix.startswith("  fix:     ") and " pulumi==3.230.0 " in fix
