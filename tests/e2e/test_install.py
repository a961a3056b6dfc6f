"""The command line as `uv tool install` installs it, from a copy of the repository into a new home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra.common.artifacts import ROOT
from tests.e2e.rehearsed import plain_environment

pytestmark = pytest.mark.engine

UV = ROOT / ".venv/bin/uv"
STACKS = sorted(file.stem.removeprefix("Pulumi.") for file in (ROOT / "stacks").glob("Pulumi.*.yaml"))
ALL = """
import importlib, json, pkgutil, sys, trainyard_start
trainyard_start.put_tree_first()
import trainyard
from trainyard.cli import app
for module in pkgutil.walk_packages(trainyard.__path__, "trainyard."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
for words in json.load(sys.stdin):
    app(words, standalone_mode=False)
"""
"""Imports each module of the commands, then runs a list of commands, in one process."""


@dataclass(frozen=True)
class InstalledCommand:
    """An installed command line, in a folder with the shipped stack files."""

    home: Path
    project: Path
    variables: dict[str, str]

    def run(self, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a program that is installed."""
        return subprocess.run(
            words,
            cwd=self.project,
            env=self.variables,
            input=given,
            capture_output=True,
            text=True,
            timeout=600,
        )

    @property
    def environment(self) -> Path:
        return self.home / ".local/share/uv/tools/trainyard"


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledCommand]:
    folder = tmp_path_factory.mktemp("install")
    copy, home, project = folder / "repository", folder / "home", folder / "project"
    _copy_repository(copy)
    shutil.copytree(ROOT / "stacks", project / "stacks")
    caches = {
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR", str(Path.home() / ".cache/uv")),
        "TRAINYARD_CACHE": os.environ.get("TRAINYARD_CACHE", str(Path.home() / ".cache/trainyard")),
        "GOMODCACHE": os.environ.get("GOMODCACHE", str(Path.home() / "go/pkg/mod")),
    }
    variables = {**plain_environment(folder), **caches, "HOME": str(home), "COLUMNS": "200"}
    variables["PATH"] = f"{home / '.local/bin'}:{os.environ['PATH']}"
    for name in ("TRAINYARD_STACKS", "VIRTUAL_ENV", "XDG_DATA_HOME"):
        variables.pop(name, None)
    for name in ("catalog", "infra", "trainyard"):  # the project's own, which no process of ours imports
        (project / name).mkdir()
        (project / name / "__init__.py").write_text("raise ImportError(__file__)\n")
    variables["PYTHONPATH"] = "."
    found = InstalledCommand(home, project, variables)
    lock = ROOT / "requirements/host.txt"
    installed = found.run(str(UV), "tool", "install", "--constraints", str(lock), f"{copy}[local]")
    assert installed.returncode == 0, installed.stderr
    shutil.rmtree(copy)
    yield found


def _copy_repository(folder: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ":!tests", ":!docs"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def test_the_command_line_alone_is_put_on_path(tool: InstalledCommand) -> None:
    """The engine would use a `pulumi-resource-trainyard` on PATH, whatever version a program pins."""
    assert [each.name for each in (tool.home / ".local/bin").iterdir() if "trainyard" in each.name] == [
        "trainyard"
    ]


def test_no_other_process_of_the_environment_finds_our_packages(tool: InstalledCommand) -> None:
    find = "from importlib.util import find_spec; print(*map(find_spec, ('engine', 'local', 'policies')))"
    found = tool.run(str(tool.environment / "bin/python"), "-P", "-c", find)
    assert found.stdout == "None None None\n"


def test_commands_without_requests_work_without_a_clone(tool: InstalledCommand) -> None:
    helped = tool.run("trainyard", "--help")
    assert helped.returncode == 0 and "Usage: trainyard" in helped.stdout
    commands = [
        *(["validate", "--stack", stack] for stack in STACKS),
        *(["price", stack] for stack in STACKS if stack != "hybrid"),
        ["catalog", "--accelerator", "h200"],
        ["schema"],
        ["schema", "--package"],
    ]
    ran = tool.run(str(tool.environment / "bin/python"), "-P", "-c", ALL, given=json.dumps(commands))
    assert ran.returncode == 0, ran.stderr
    for stack in STACKS:
        assert f"✓ Pulumi.{stack}.yaml is valid" in ran.stdout
    assert "USD/month" in ran.stdout and "gd-8xh200ib-i128" in ran.stdout
    schemas = [ROOT / "stacks/schema.json", ROOT / "engine/provider/schema.json"]
    assert ran.stdout.endswith("".join(file.read_text() for file in schemas))


def test_a_plan_is_made_in_the_environment_that_it_was_installed_in(tool: InstalledCommand) -> None:
    previewed = tool.run("trainyard", "preview", "--stack", "local")
    assert previewed.returncode == 0, previewed.stderr[-3000:]
    assert "kueue.x-k8s.io/v1beta2:LocalQueue team-research/research" in previewed.stderr


def test_a_targets_sdk_is_offered_when_it_is_needed_and_not_before(tool: InstalledCommand) -> None:
    refused = tool.run("trainyard", "preview", "--stack", "coreweave")
    assert refused.returncode == 3
    assert "pulumi-coreweave" in refused.stderr
    assert "fix:     uv tool install 'trainyard[coreweave,local] @ file://" in refused.stderr


def test_a_members_command_asks_the_cluster_by_a_context_alone(tool: InstalledCommand) -> None:
    refused = tool.run("trainyard", "jobs", "--context", "nowhere")
    assert refused.returncode == 2
    assert refused.stderr.startswith("1 problem\n--context\n  got:     'nowhere'")
