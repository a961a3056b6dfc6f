from typing import Annotated

import typer

from trainyard.commands.options import Context, Output, StackName, Team
from trainyard.forms import Form
from trainyard.stack.session import Session

app = typer.Typer(no_args_is_help=True, help="Write secrets for a team's jobs; nobody can read one back.")
SecretName = Annotated[
    str, typer.Argument(metavar="NAME", help="The variable that your program reads, such as HF_TOKEN.")
]


@app.command(name="set")
def set_secret(name: SecretName, team: Team = "", stack: StackName = "", context: Context = "") -> None:
    """Store a value for the team's jobs, from a hidden prompt or the standard input.

    Each value is a new Secret, whose name is printed. No argument, log, output or job object contains it.

    [dim]trainyard team secret set HF_TOKEN --context research
    pass show hf | trainyard team secret set HF_TOKEN[/]
    """
    from trainyard.jobs import secrets

    secrets.set_secret(Session(stack, context=context, team=team), name)


@app.command(name="ls")
def list_secrets(
    team: Team = "", stack: StackName = "", context: Context = "", output: Output = Form.TEXT
) -> None:
    """List names and versions, never values. For administrators: members may not list Secrets."""
    from trainyard.jobs import secrets

    secrets.list_secrets(Session(stack, context=context, team=team), output)


@app.command(name="rm")
def remove_secret(name: SecretName, team: Team = "", stack: StackName = "", context: Context = "") -> None:
    """Delete all versions of a secret. For administrators: members may not delete Secrets."""
    from trainyard.jobs import secrets

    secrets.remove_secret(Session(stack, context=context, team=team), name)
