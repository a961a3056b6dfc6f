from pathlib import Path
from typing import Annotated

import typer

from trainyard.stack.session import Session


def pipeline(
    service: Annotated[str, typer.Argument(help="github, gitlab, azure or jenkins.")],
    repository: Annotated[
        str, typer.Option(metavar="OWNER/NAME", help="Your copy of Trainyard; a URL, except on GitHub.")
    ] = "",
    commit: Annotated[str, typer.Option(metavar="SHA", help="Its commit, of 40 hex digits.")] = "",
    stack: Annotated[
        list[str] | None, typer.Option("--stack", "-s", help="In order, dev before prod. Default: all.")
    ] = None,
    organisation_file: Annotated[
        str, typer.Option(metavar="PATH", help="The organisation file, in that copy.")
    ] = "templates/pipelines/organisation.json",
    image: Annotated[
        str, typer.Option(help="GitLab: image of the jobs, python:3.11-bookworm@sha256:….")
    ] = "",
    project: Annotated[Path, typer.Option(help="The folder to write into.")] = Path(),
) -> None:
    """Write the pipeline of a project, for its stacks and one commit of your copy of Trainyard.

    [dim]trainyard stack pipeline github --repository team/trainyard --commit SHA -s dev -s prod[/]
    """
    from trainyard.stack.pipeline import Pin, write_pipeline

    write_pipeline(
        Session(""), service, Pin(repository, commit, organisation_file, image), stack or (), project
    )
