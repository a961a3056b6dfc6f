from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def deploy_role(
    stack: StackName = "",
    github: Annotated[str, typer.Option(metavar="OWNER/NAME", help="The repository on GitHub.")] = "",
    github_ids: Annotated[
        str, typer.Option(metavar="OWNER/REPOSITORY", help="Its IDs, which tokens of new repositories have.")
    ] = "",
    gitlab: Annotated[str, typer.Option(metavar="GROUP/PROJECT", help="The project on GitLab.")] = "",
    branch: Annotated[str, typer.Option(help="GitLab: the branch that runs `up`.")] = "main",
    host: Annotated[str, typer.Option(help="Host of your GitLab.")] = "gitlab.com",
    read: Annotated[bool, typer.Option("--read", help="The read-only role for previews.")] = False,
) -> None:
    """Print the minimum rights of a pipeline that runs `up`, and its role's trust policy, as JSON.

    Only the stack file determines them. An administrator creates the role once.

    [dim]trainyard stack deploy-role -s aws --github team/research
    trainyard stack deploy-role -s aws --github team/research --read[/]
    """
    from trainyard.stack.deploy_role import pipeline_of, show_deploy_role

    session = Session(stack)
    of = {"stack": session.stack_name, "branch": branch, "host": host, "ids": github_ids}
    show_deploy_role(session, pipeline_of(github, gitlab, read_only=read, **of))
