from typing import Annotated

import typer

from trainyard.commands.options import Context, Detach, DryRun, JobName, StackName, TeamOfJob
from trainyard.stack.session import Session


def rerun(
    job: JobName,
    team: TeamOfJob = "",
    stack: StackName = "",
    context: Context = "",
    name: Annotated[str, typer.Option(help="The new job's name. Default: the old one's, with digits.")] = "",
    dry_run: DryRun = False,
    detach: Detach = False,
) -> None:
    """Run a job again with the same code, image, command, data and size.

    [dim]trainyard job rerun tune-3f9a1c[/]
    """
    from trainyard.jobs.submit import rerun_job

    rerun_job(Session(stack, context=context, team=team), job, name, dry_run=dry_run, detach=detach)
