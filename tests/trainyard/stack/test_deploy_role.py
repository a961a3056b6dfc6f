"""`trainyard stack deploy-role`: its arguments, and the project that may assume the role."""

import json
from pathlib import Path

import pytest

from infra.errors import InputError
from tests.trainyard.commands.alone import printed_alone
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
    role = printed_alone(tmp_path, "stack deploy-role -s aws-dev --gitlab team/research")
    assert "project_path:team/research:ref_type:branch:ref:main" in json.dumps(role["trust"])
    assert set(role["rights"]) >= {"dev-deploy-1", "dev-deploy-2"}
