"""Options and arguments that several commands have."""

from pathlib import Path
from typing import Annotated

import typer

from trainyard.forms import Form, ReportForm

StackName = Annotated[
    str,
    typer.Option(
        "--stack",
        "-s",
        envvar="TRAINYARD_STACK",
        help="NAME of stacks/Pulumi.NAME.yaml. Default: the folder's only one, else local.",
    ),
]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="TRAINYARD_CONTEXT",
        help="A context of your kubeconfig, with your team's namespace. No stack file is needed then.",
    ),
]
AdminContext = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="TRAINYARD_CONTEXT",
        help="A context of your kubeconfig that reaches the cluster. Default: the stack's kubeconfig.",
    ),
]
Output = Annotated[Form, typer.Option("--output", "-o", help="Output format on stdout.")]
ReportOutput = Annotated[ReportForm, typer.Option("--output", "-o", help="Output format on stdout.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print also the queue's own message, as Kueue writes it.")
]
Since = Annotated[
    str,
    typer.Option(
        metavar="COMMIT",
        envvar="TRAINYARD_SINCE",
        help="Name approvals only of teams' files that differ from this commit. Default: of all.",
    ),
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name, as in `trainyard jobs`.")]
OptionalJob = Annotated[str, typer.Argument(metavar="[JOB]", help="The job. Default: the newest one.")]
JobFile = Annotated[
    Path | None, typer.Option("--job", metavar="FILE", help="A job.yaml (docs/jobs.md). Default: none.")
]
Team = Annotated[str, typer.Option(help="The team. Default: the context's team, or your only one.")]
TeamOfJob = Annotated[str, typer.Option("--team", help="The team. Default: all teams that you may see.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait for the job.")]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Submit nothing: print the TrainJob, and where, when and at what price it would run.",
    ),
]
Rank = Annotated[int, typer.Option(min=0, help="The rank, counted over all nodes of the job.")]
