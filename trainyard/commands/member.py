"""Defines the team members' commands on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard.forms import Form
from trainyard.stack.session import Session

app = typer.Typer()

StackName = Annotated[
    str,
    typer.Option("--stack", "-s", envvar="TRAINYARD_STACK", help="NAME of stacks/Pulumi.NAME.yaml."),
]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="TRAINYARD_CONTEXT",
        help="A context of your kubeconfig, with your team's namespace. No stack file is needed then.",
    ),
]
Output = Annotated[Form, typer.Option("--output", "-o", help="Output format on stdout.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job's name, as in `trainyard jobs`.")]
OptionalJob = Annotated[str, typer.Argument(metavar="[JOB]", help="The job. Default: the stack's job.")]
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
HoldTime = Annotated[
    str, typer.Option(metavar="TIME", help="Retain a failed job's pods for trainyard shell: 30m, 2h.")
]


@app.command()
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB.YAML] [-- COMMAND …]", help="What to run: a file, a command, or both."),
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
    folder: Annotated[bool, typer.Option(help="Send this folder's files.")] = True,
    name: Annotated[str, typer.Option(help="The job's name. Default: the folder's, with digits.")] = "",
    team: Team = "",
    queue: Annotated[str, typer.Option(help="One of the team's queues. Default: one with free quota.")] = "",
    priority: Annotated[str, typer.Option(help="One of the stack's priorities. Default: normal.")] = "",
    hold_on_failure: HoldTime = "",
    dry_run: DryRun = False,
    detach: Detach = False,
    stack: StackName = "local",
    context: Context = "",
) -> None:
    """Run this folder's code on the team's GPUs, and follow its log.

    `python FILE` starts once per GPU, with torchrun's variables; any other command once per node. Files that
    git tracks are sent, with uncommitted changes. With several nodes, each line of the log names its node.
    Ctrl-C never stops the job.

    [dim]trainyard run --gpus 16 -- python train.py --lr 3e-4
    trainyard run job.yaml
    trainyard run job.yaml --gpus 8 --dry-run[/]
    """
    from trainyard.commands.run import run_job
    from trainyard.source.options import RunRequest, minutes_of

    given = {
        "name": name,
        "team": team,
        "queue": queue,
        "priority": priority,
        "image": image,
        "processes_per_node": ranks_per_node,
        "datasets": dataset,
        "files": include,
        "hold_on_failure_minutes": minutes_of(hold_on_failure),
    }
    asked = RunRequest(
        words=words or (),
        gpus=gpus,
        nodes=nodes,
        flags={key: value for key, value in given.items() if value},
        environment=env or (),
        secrets=secret or (),
        takes_folder=folder,
    )
    run_job(Session(stack, context=context), asked, dry_run=dry_run, detach=detach)


@app.command()
def rerun(
    job: JobName,
    team: TeamOfJob = "",
    stack: StackName = "local",
    context: Context = "",
    name: Annotated[str, typer.Option(help="The new job's name. Default: the old one's, with digits.")] = "",
    dry_run: DryRun = False,
    detach: Detach = False,
) -> None:
    """Run a job again with the same code, image, command, data and size.

    [dim]trainyard rerun tune-3f9a1c[/]
    """
    from trainyard.jobs.submit import rerun_job

    rerun_job(Session(stack, context=context, team=team), job, name, dry_run=dry_run, detach=detach)


@app.command()
def jobs(
    team: TeamOfJob = "",
    stack: StackName = "local",
    context: Context = "",
    output: Output = Form.TEXT,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep running, and show each change.")] = False,
) -> None:
    """List your teams' jobs: state, GPUs, restarts, nodes, and why they wait or failed.

    [dim]trainyard jobs --context research
    trainyard jobs --watch
    trainyard jobs -o json | jq -r '.[] | select(.state == "failed").name'[/]
    """
    from trainyard.jobs.listing import show_jobs

    show_jobs(Session(stack, context=context, team=team), output, watch=watch)


@app.command()
def queue(
    team: TeamOfJob = "", stack: StackName = "local", context: Context = "", output: Output = Form.TEXT
) -> None:
    """Show which jobs wait and why, the jobs before them, free GPUs, and estimated start times.

    An estimate is a range, with its basis: time limits of jobs, and run times of the team's ended jobs.

    [dim]trainyard queue --context research
    trainyard queue -o json | jq '.waiting[0].start'[/]
    """
    from trainyard.jobs.queue import show_queue

    show_queue(Session(stack, context=context, team=team), output)


@app.command()
def login(
    file: Annotated[
        Path, typer.Argument(help="The file of `trainyard access export`, from your platform team.")
    ],
    allow: Annotated[
        str, typer.Option(metavar="PROGRAM", help="A further exec plugin that may sign you in.")
    ] = "",
) -> None:
    """Add a context to your kubeconfig, with which you reach a cluster as a team member.

    [dim]trainyard login training-research.access.yaml
    export TRAINYARD_CONTEXT=training-research[/]
    """
    from trainyard.commands.login import log_in

    log_in(Session("local"), file, allowed=allow)


@app.command()
def logs(
    name: OptionalJob = "",
    team: TeamOfJob = "",
    stack: StackName = "local",
    context: Context = "",
    rank: Annotated[int | None, typer.Option(min=0, help="Only the node of this rank.")] = None,
    node: Annotated[int | None, typer.Option(min=0, help="Only this node, counted from 0.")] = None,
    attempt: Annotated[
        int | None, typer.Option(min=0, help="Only this attempt (start of the job's pods), counted from 0.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job ends.")] = False,
) -> None:
    """Print a job's logs: all nodes and attempts, also after their pods are deleted.

    With several nodes, each line names its node; with one node, lines are printed unchanged.

    [dim]trainyard logs digits
    trainyard logs digits -f --rank 0
    trainyard logs digits --attempt 1 --node 3 > node-3.log[/]
    """
    from trainyard.jobs.logs import ALL, Selection, show_logs

    rank, node, attempt = (ALL if each is None else each for each in (rank, node, attempt))
    chosen = Selection(rank=rank, node=node, attempt=attempt)
    show_logs(Session(stack, context=context, team=team), name, chosen, follow=follow)


@app.command()
def stacks(name: JobName, team: TeamOfJob = "", stack: StackName = "local", context: Context = "") -> None:
    """Print the stack of each thread of each rank of a running job.

    Ranks that use trainyard_train print stacks, even while they wait in a library; others are only named.

    [dim]trainyard stacks digits[/]
    """
    from trainyard.jobs.stacks import show_stacks

    show_stacks(Session(stack, context=context, team=team), name)


@app.command()
def bundle(
    name: JobName,
    team: TeamOfJob = "",
    stack: StackName = "local",
    context: Context = "",
    to: Annotated[Path | None, typer.Option(help="The archive. Default: JOB-TIME.tar.gz.")] = None,
) -> None:
    """Pack everything known about a job into one archive, for debugging.

    It contains the logs of all nodes and attempts, stacks of running ranks, events, and the job's objects
    without the values of variables and arguments whose names suggest secrets. Logs are not filtered.

    [dim]trainyard bundle digits
    trainyard bundle digits --to digits.tar.gz[/]
    """
    from trainyard.jobs.bundle import write_bundle

    session = Session(stack, context=context, team=team)
    session.console.print(write_bundle(session, name, to), highlight=False)


@app.command()
def cancel(
    name: OptionalJob = "", team: TeamOfJob = "", stack: StackName = "local", context: Context = ""
) -> None:
    """Delete a job and its pods. Its checkpoints are retained."""
    from trainyard.jobs.cancel import cancel_job

    cancel_job(Session(stack, context=context, team=team), name)


@app.command()
def pause(name: JobName, team: TeamOfJob = "", stack: StackName = "local", context: Context = "") -> None:
    """Let a job save a checkpoint and release its GPUs; `trainyard resume` continues it.

    Its pods get SIGTERM, as in a preemption: the training package commits a checkpoint within the grace
    period; a program that ignores SIGTERM resumes from its last checkpoint.

    [dim]trainyard pause digits --context research[/]
    """
    from trainyard.jobs.pause import pause_job

    pause_job(Session(stack, context=context, team=team), name)


@app.command()
def resume(name: JobName, team: TeamOfJob = "", stack: StackName = "local", context: Context = "") -> None:
    """Put a paused job back into its queue; it resumes from its newest checkpoint."""
    from trainyard.jobs.pause import resume_job

    resume_job(Session(stack, context=context, team=team), name)


secret = typer.Typer(no_args_is_help=True, help="Write secrets for a team's jobs; nobody can read one back.")
app.add_typer(secret, name="secret")
SecretName = Annotated[
    str, typer.Argument(metavar="NAME", help="The variable that your program reads, such as HF_TOKEN.")
]


@secret.command(name="set")
def set_secret(name: SecretName, team: Team = "", stack: StackName = "local", context: Context = "") -> None:
    """Store a value for the team's jobs, from a hidden prompt or the standard input.

    Each value is a new Secret, whose name is printed. No argument, log, output or job object contains it.

    [dim]trainyard secret set HF_TOKEN --context research
    pass show hf | trainyard secret set HF_TOKEN[/]
    """
    from trainyard.jobs import secrets

    secrets.set_secret(Session(stack, context=context, team=team), name)


@secret.command(name="ls")
def list_secrets(
    team: Team = "", stack: StackName = "local", context: Context = "", output: Output = Form.TEXT
) -> None:
    """List names and versions, never values. For administrators: members may not list Secrets."""
    from trainyard.jobs import secrets

    secrets.list_secrets(Session(stack, context=context, team=team), output)


@secret.command(name="rm")
def remove_secret(
    name: SecretName, team: Team = "", stack: StackName = "local", context: Context = ""
) -> None:
    """Delete all versions of a secret. For administrators: members may not delete Secrets."""
    from trainyard.jobs import secrets

    secrets.remove_secret(Session(stack, context=context, team=team), name)


Rank = Annotated[int, typer.Option(min=0, help="The rank, counted over all nodes of the job.")]


@app.command(context_settings={"ignore_unknown_options": True})
def shell(
    name: JobName,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- PROGRAM …]", help="Run this program instead of a shell."),
    ] = None,
    team: TeamOfJob = "",
    stack: StackName = "local",
    context: Context = "",
    rank: Rank = 0,
) -> None:
    """Open a shell in the pod of a rank, or run one program there and exit with its code.

    [dim]trainyard shell digits --rank 3
    trainyard shell digits -- nvidia-smi[/]
    """
    from trainyard.jobs.shell import open_shell

    raise typer.Exit(open_shell(Session(stack, context=context, team=team), name, rank, command or ()))


@app.command()
def forward(
    name: JobName,
    port: Annotated[str, typer.Argument(metavar="[LOCAL:]PORT", help="Such as 6006, or 16006:6006.")],
    team: TeamOfJob = "",
    stack: StackName = "local",
    context: Context = "",
    rank: Rank = 0,
) -> None:
    """Forward a port of a job's pod to this host (127.0.0.1 only), until Ctrl-C.

    [dim]trainyard forward digits 6006           TensorBoard of rank 0
    trainyard forward digits 0:8000 --rank 8    on any free local port[/]
    """
    from trainyard.jobs.forward import forward_port

    forward_port(Session(stack, context=context, team=team), name, port, rank)
