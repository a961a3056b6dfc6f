"""A new team by a form of GitHub or of Backstage, from its values to the pull request."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml

from infra.common.artifacts import ROOT
from infra.stackfile import load
from tests.e2e.pipelines import TEAM, github_steps, written
from tests.infra.stackfile.test_team_files import stack
from tests.processes import capture

FORM = yaml.safe_load(written("github/team-form.yml"))
BACKSTAGE = yaml.safe_load((ROOT / "templates/pipelines/backstage/template.yaml").read_text())["spec"]
PLAIN = {"name": "vision", "owner": "ada@example.com", "expires": "2999-12-31", "cost_centre": "4711"}
VALUES = PLAIN | {"group": "vision, robots", "quota": "spot=1,on-demand=1"}


def issue(values: Mapping[str, str]) -> str:
    """Return the issue that GitHub makes of the form ("Syntax for issue forms")."""
    texts = [(each["attributes"]["label"], values.get(each["id"], "")) for each in FORM["body"]]
    return "\n\n".join(f"### {label}\n\n{text or '_No response_'}" for label, text in texts)


def inputs(values: Mapping[str, str]) -> str:
    """Return the workflow's inputs as Backstage's action sends them; GitHub refuses unknown ones."""
    (step,), (form,) = BACKSTAGE["steps"], BACKSTAGE["parameters"]
    sent = step["input"]["workflowInputs"]
    assert sent == {key: f"${{{{ parameters.{key} }}}}" for key in form["properties"]}
    known = TEAM[True]["workflow_dispatch"]["inputs"]  # YAML 1.1 reads `on` as true
    assert sent.keys() == known.keys() == {each["id"] for each in FORM["body"]}
    assert {key for key, each in known.items() if each.get("required")} == {*form["required"]}
    return json.dumps({key: values.get(key, "") for key in sent})


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A runner's folder with a clone of the project and a fake `gh`."""
    project = tmp_path / "project"
    (project / "stacks").mkdir(parents=True)
    keys = "    self_service: {approvers: ['@org/p'], max_quota: 1}\n"
    stack(project / "stacks", keys=keys, speech="name: speech\n").rename(project / "stacks/Pulumi.dev.yaml")
    (form := project / ".github/ISSUE_TEMPLATE/trainyard-team.yml").parent.mkdir(parents=True)
    form.write_text(yaml.safe_dump(FORM))
    (tmp_path / "gh").write_text("#!/bin/sh\n")
    (tmp_path / "gh").chmod(0o755)
    commit = "git init -qb main; git add .; git -c user.name=a -c user.email=a@b commit -qm a"
    script = f"{commit}; git clone -q --bare . ../origin; git remote add origin ../origin"
    subprocess.run(["bash", "-ec", script], cwd=project, check=True)
    return tmp_path


def run(step: str, workspace: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    given = {"STACK": "dev", "TRAINYARD_STACKS": str(workspace / "project/stacks"), **variables}
    path = {"PATH": f"{workspace}:{os.environ['PATH']}", "TRAINYARD": str(ROOT), "PYTHONPATH": str(ROOT)}
    script = ["bash", "-eo", "pipefail", "-c", github_steps("team")[step]]
    return capture(script, cwd=workspace, env={**os.environ, **path, **given})


@pytest.mark.parametrize(("form", "number"), [(issue, "7"), (inputs, "")])
def test_a_forms_values_become_a_pull_request_with_one_file_of_few_lines(
    form: Callable[[Mapping[str, str]], str], number: str, workspace: Path
) -> None:
    assert run("Write the file", workspace, FORM=form(VALUES)).returncode == 0
    opened = run("Open the pull request", workspace, ISSUE=number)
    assert opened.returncode == 0, opened.stderr
    changed = ["git", "-C", str(workspace / "origin"), "diff", "--name-only", "main", "team/vision"]
    assert capture(changed).stdout == "stacks/teams/vision.yaml\n"
    text = (workspace / "project/stacks/teams/vision.yaml").read_text()
    own = {"members": ["vision", "robots"], "quota": {"spot": 1, "on-demand": 1}}
    assert (yaml.safe_load(text), len(text.splitlines()) <= 12) == (PLAIN | own, True)
    assert load(workspace / "project/stacks/Pulumi.dev.yaml").teams[-1].name == "vision"
    approval, *closes = (workspace / "body.md").read_text().splitlines()
    assert approval.endswith("team vision: 2 accelerators, above 1: needs the approval of @org/p")
    assert closes == ["Closes #7"] * bool(number)


def test_what_is_wrong_is_commented_and_nothing_is_written(workspace: Path) -> None:
    attack = {**VALUES, "name": "$(touch owned)\n\n### Name\n\n../../x"}
    assert run("Write the file", workspace, FORM=issue(attack)).returncode == 2
    assert capture(["git", "status", "--porcelain"], cwd=workspace / "project").stdout == ""
    assert run("Say what is wrong", workspace, ISSUE="7", GITHUB_REPOSITORY="a/b").returncode == 0
    assert "lower-case letters" in (workspace / "problems.md").read_text()
    assert not [*workspace.rglob("owned")]
