"""`trainyard stack deploy-role`: its arguments, and the project that may assume the role."""

import json
import subprocess
from pathlib import Path

import pytest

from infra.common.artifacts import ROOT
from infra.errors import InputError
from trainyard.stack.deploy_role import pipeline_of, show_deploy_role
from trainyard.stack.session import Session


@pytest.mark.parametrize(("github", "gitlab"), [("", ""), ("team/a", "team/a")])
def test_exactly_one_project_must_be_named(github: str, gitlab: str) -> None:
    with pytest.raises(InputError, match="one of --github and --gitlab"):
        pipeline_of(github, gitlab, stack="dev", read_only=False)


@pytest.mark.parametrize("stack", ["local", "coreweave"])
def test_a_stack_in_no_account_has_no_role(stack: str) -> None:
    with pytest.raises(InputError, match="aws, azure, gcp"):
        show_deploy_role(Session(stack), pipeline_of("team/a", "", stack="dev", read_only=False))


@pytest.mark.engine
def test_the_command_prints_the_role_without_any_request(tmp_path: Path) -> None:
    command = [
        str(ROOT / ".venv/bin/trainyard"),
        "stack",
        "deploy-role",
        "-s",
        "aws-dev",
        "--gitlab",
        "team/research",
    ]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "TRAINYARD_STATE": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    role = json.loads(ended.stdout)
    assert "project_path:team/research:ref_type:branch:ref:main" in json.dumps(role["trust"])
    assert set(role["rights"]) >= {"dev-deploy-1", "dev-deploy-2"}
