"""`trainyard stack deploy-role`: prints the least-privilege role of a pipeline that deploys a stack, and who
may assume it.
"""

import json
import sys
from dataclasses import asdict
from typing import Literal

from infra.errors import InputError, Problem
from infra.targets.deploying import Pipeline
from trainyard.stack.preview import declared, prepared
from trainyard.stack.session import Session


def pipeline_of(
    github: str,
    gitlab: str,
    *,
    stack: str,
    read_only: bool,
    branch: str = "main",
    host: str = "gitlab.com",
    ids: str = "",
) -> Pipeline:
    """Return the pipeline that the command's options name. Raises InputError."""
    if bool(github) == bool(gitlab):
        got = f"--github {github} --gitlab {gitlab}" if github else "neither --github nor --gitlab"
        fix = "name the project whose jobs take the role"
        raise InputError([Problem("pipeline", got, "one of --github and --gitlab", fix)])
    service: Literal["github", "gitlab"] = "github" if github else "gitlab"
    return Pipeline(service, github or gitlab, read_only, branch, host, stack=stack, ids=ids)


def show_deploy_role(session: Session, pipeline: Pipeline) -> None:
    """Print who may assume the role and its rights, as JSON; makes no request. Raises InputError."""
    stack = session.stack  # wrong input ends here
    account = session.target.open_account()
    if account is None:
        got = f"kind: {session.target.kind}"
        fix = "name another stack; the guides of other targets list the rights that `up` needs"
        raise InputError([Problem(f"stack {session.stack_name}", got, "aws, azure, gcp", fix)])
    role = account.deploy_role(stack, declared(stack, prepared(session)), pipeline)
    sys.stdout.write(json.dumps(asdict(role), indent=1) + "\n")
