from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.options import AdminContext, StackName
from trainyard.stack.session import Session


def measure(
    metrics: Annotated[
        Path | None,
        typer.Argument(help="metrics.jsonl of a run. Default: the newest run of the stack's job."),
    ] = None,
    stack: StackName = "",
    assume: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="Before the first `up`: assume this time, for two weeks."
        ),
    ] = None,
    context: AdminContext = "",
) -> None:
    """Write the time of a run's longest checkpoint beside the stack file, for the spot policies.

    Policies refuse spot nodes with accelerators until it is known whether a checkpoint fits into their
    preemption notice, with this filesystem and model. Without a file, a small pod of the job's team reads
    the newest run's metrics on the team's volume.

    [dim]trainyard measure -s aws --assume 60           before the first `up`
    trainyard measure -s aws                       after a checkpoint of the stack's job
    trainyard measure runs/run-1/metrics.jsonl -s aws[/]
    """
    from trainyard.jobs import measure as measuring

    session = Session(stack, context=context)
    session.stack  # noqa: B018 -- wrong input ends here
    if metrics is not None:
        file = measuring.measure(metrics, session.stack_file)
    elif assume is not None:
        file = measuring.assume(assume, session.stack_file)
    else:
        file = measuring.measure_on_cluster(session)
    session.console.print(f"{file}: {file.read_text().strip()}", highlight=False)
