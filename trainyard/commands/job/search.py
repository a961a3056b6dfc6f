from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.options import AdminContext, StackName
from trainyard.stack.session import Session


def search(
    file: Annotated[Path, typer.Argument(help="The search as YAML; see docs/training.md.")],
    job: Annotated[Path, typer.Option(metavar="FILE", help="The job.yaml that each trial changes.")],
    stack: StackName = "",
    context: AdminContext = "",
) -> None:
    """Submit a hyperparameter search: each trial is a job in the queue; poor trials end early."""
    from trainyard.jobs.search import submit_search

    submit_search(Session(stack, context=context), file, job)
