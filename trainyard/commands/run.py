from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainyard.commands.options import Context, Detach, DryRun, StackName, Team
from trainyard.stack.session import Session

if TYPE_CHECKING:
    from trainyard.source.options import RunRequest

_UNNAMED = "unnamed"
"""Placeholder for the team, until the cluster's teams are known."""
Gpus = Annotated[int | None, typer.Option(min=1, help="Number of GPUs, over all nodes.")]
Nodes = Annotated[
    int | None, typer.Option(min=1, help="Number of nodes. Without --gpus the job gets all of their GPUs.")
]
RanksPerNode = Annotated[
    int | None, typer.Option(min=1, help="Processes per node. Default: one per GPU for python, else one.")
]
SecretsOfJob = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="The newest version of a secret: NAME, NAME=VARIABLE or NAME=@FILE."),
]
Include = Annotated[
    list[str] | None,
    typer.Option(metavar="PATH", help="Also send this file, folder or pattern that git does not track."),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        metavar="FILE",
        help="Packages beyond the image: requirements.txt, uv.lock, a folder of wheels.",
    ),
]
HoldTime = Annotated[
    str, typer.Option(metavar="TIME", help="Retain a failed job's pods for trainyard shell: 30m, 2h.")
]


def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB.YAML | SCRIPT.SBATCH] [-- COMMAND …]",
            help="What to run: a file, a command, or both.",
        ),
    ] = None,
    gpus: Gpus = None,
    nodes: Nodes = None,
    ranks_per_node: RanksPerNode = None,
    image: Annotated[str, typer.Option(help="Image by digest. Default: the stack's training image.")] = "",
    env: Annotated[
        list[str] | None, typer.Option("--env", metavar="K=V", help="An environment variable.")
    ] = None,
    secret: SecretsOfJob = None,
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A dataset that the job reads.")
    ] = None,
    include: Include = None,
    with_: With = None,
    folder: Annotated[bool, typer.Option(help="Send this folder's files.")] = True,
    name: Annotated[str, typer.Option(help="The job's name. Default: the folder's, with digits.")] = "",
    team: Team = "",
    queue: Annotated[str, typer.Option(help="One of the team's queues. Default: one with free quota.")] = "",
    priority: Annotated[str, typer.Option(help="One of the stack's priorities. Default: normal.")] = "",
    hold_on_failure: HoldTime = "",
    run: Annotated[str, typer.Option("--run", metavar="RUN", help="Continue this run of the job.")] = "",
    dry_run: DryRun = False,
    detach: Detach = False,
    stack: StackName = "",
    context: Context = "",
) -> None:
    """Run this folder's code on the team's GPUs, and follow its log.

    `python FILE` starts once per GPU, with torchrun's variables; any other command once per node. Files that
    git tracks are sent, with uncommitted changes. With several nodes, each line of the log names its node.
    Ctrl-C never stops the job.

    [dim]trainyard run --gpus 16 -- python train.py --lr 3e-4
    trainyard run --gpus 8 --with requirements.txt -- python train.py
    trainyard run job.yaml
    trainyard run train.sbatch
    trainyard run job.yaml --gpus 8 --dry-run[/]
    """
    from trainyard.source.options import RunRequest

    given = {
        "name": name,
        "team": team,
        "queue": queue,
        "priority": priority,
        "image": image,
        "ranks_per_node": ranks_per_node,
        "datasets": dataset,
        "files": include,
        "with": with_,
        "hold_on_failure": hold_on_failure,
    }
    asked = RunRequest(
        words=words or (),
        gpus=gpus,
        nodes=nodes,
        flags={key: value for key, value in given.items() if value},
        environment=env or (),
        secrets=secret or (),
        takes_folder=folder,
        run=run,
    )
    _submit(Session(stack, context=context), asked, dry_run=dry_run, detach=detach)


def _submit(session: Session, asked: "RunRequest", *, dry_run: bool, detach: bool) -> None:
    """Submit the job that is asked for: a TrainJob as it is, any other with this folder's code."""
    from trainyard.source.options import job_of, named_team, written
    from trainyard.source.sbatch import is_batch_script, request_of

    if is_batch_script(asked):
        asked = request_of(asked, session.progress.log)
    found = written(asked)
    team = named_team(asked, found, session.context)
    if found.is_train_job:
        from trainyard.jobs.submit import submit_as_it_is

        submit_as_it_is(session, found, team, dry_run=dry_run, detach=detach)
        return
    # Problems in a file are reported without a cluster, and before its client is imported.
    declared = session.declared_stack if asked.has_size_of_file else None
    if declared is not None and len(declared.teams) == 1:
        team = team or declared.teams[0].name
    job = job_of(asked, found, team or _UNNAMED, Path.cwd(), declared if team else None)
    from trainyard.jobs.submit import submit_job

    submit_job(session, job, team, asked, dry_run=dry_run, detach=detach)
