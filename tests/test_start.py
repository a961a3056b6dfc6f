"""Our processes import our packages, and no other process does, whatever packages a project has."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.paths import REPOSITORY, START

OURS = ("catalog", "engine", "infra", "local", "policies", "rehearsal", "trainyard")
PYTHON = (sys.executable, "-P")
PACK = "import runpy, sys; sys.argv[1:] = ['127.0.0.1:1']; runpy.run_path('{}', run_name='__main__')"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with a package of each of our names, which no process of ours may import."""
    for name in (*OURS, "trainyard_train"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(f"raise ImportError('{name} of the project')\n")
    return tmp_path


def start(project: Path, *command: str) -> subprocess.Popen[str]:
    variables = {**os.environ, "PYTHONPATH": "."}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=project, env=variables, text=True, stdout=pipe, stderr=pipe)


def test_the_command_runs_where_a_project_has_packages_of_our_names(project: Path) -> None:
    command = start(project, f"{sys.prefix}/bin/trainyard", "catalog", "machines", "--accelerator", "h200")
    output, errors = command.communicate()
    assert command.returncode == 0, errors
    assert "gd-8xh200ib-i128" in output


@pytest.mark.parametrize(
    "command",
    [
        (*PYTHON, str(REPOSITORY / START), "engine.provider", "127.0.0.1:1"),
        (*PYTHON, str(REPOSITORY / START), "engine.language_host", "127.0.0.1:1"),
        (sys.executable, str(REPOSITORY), "127.0.0.1:1"),
        (*PYTHON, "-c", PACK.format(REPOSITORY / "policies")),
    ],
    ids=["provider", "language host", "plugin from a repository", "policy pack"],
)
def test_a_plugin_starts_where_packages_have_our_names(project: Path, command: tuple[str, ...]) -> None:
    plugin = start(project, *command)
    assert plugin.stdout is not None and plugin.stderr is not None
    port = plugin.stdout.readline().strip()
    plugin.kill()
    assert port.isdigit(), plugin.stderr.read()
    plugin.communicate()


def test_no_other_process_finds_our_packages(tmp_path: Path) -> None:
    find = f"import importlib.util, json; print(json.dumps(list(map(importlib.util.find_spec, {OURS}))))"
    found = subprocess.check_output([*PYTHON, "-c", find], cwd=tmp_path, text=True)
    assert json.loads(found) == [None] * len(OURS)
