"""The commands of a team's member, as the command line knows them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from trainyard.forms import Form
from trainyard.session import Session

app = typer.Typer()

StackName = Annotated[
    str,
    typer.Option("--stack", "-s", envvar="TRAINYARD_STACK", help="The stack, as in stacks/Pulumi.NAME.yaml."),
]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="TRAINYARD_CONTEXT",
        help="A context of your kubeconfig, with your team's namespace; a stack file is not needed then.",
    ),
]
Output = Annotated[Form, typer.Option("--output", "-o", help="Form of the result on stdout.")]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="The job, as `trainyard jobs` names it.")]
OptionalJob = Annotated[str, typer.Argument(metavar="[JOB]", help="The job; left out: the stack's own.")]
Detach = Annotated[bool, typer.Option("--detach", help="Do not wait for it.")]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", help="Submit nothing: print the TrainJob, and where, when and at what price."),
]


Gpus = Annotated[int | None, typer.Option(min=1, help="GPUs of all nodes together.")]
Nodes = Annotated[int | None, typer.Option(min=1, help="Nodes; without --gpus with all of their GPUs.")]
RanksPerNode = Annotated[
    int | None, typer.Option(min=1, help="Left out: one per GPU for python, else one per node.")
]
SecretsOfJob = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Newest of a secret: NAME, NAME=VARIABLE or NAME=@FILE."),
]
Include = Annotated[list[str] | None, typer.Option(help="A file, folder or pattern that git does not track.")]
HoldTime = Annotated[
    str, typer.Option(metavar="TIME", help="Keep a failed job's pods for trainyard shell: 30m, 2h.")
]


@app.command()
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[JOB.YAML] [-- COMMAND …]", help="What to run: a file, a command, or both."),
    ] = None,
    stack: StackName = "local",
    context: Context = "",
    gpus: Gpus = None,
    nodes: Nodes = None,
    ranks_per_node: RanksPerNode = None,
    image: Annotated[str, typer.Option(help="Image by digest; left out: the stack's training image.")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", metavar="K=V", help="A variable.")] = None,
    secret: SecretsOfJob = None,
    dataset: Annotated[list[str] | None, typer.Option(help="A dataset that it reads.")] = None,
    include: Include = None,
    folder: Annotated[bool, typer.Option(help="Take this folder along.")] = True,
    name: Annotated[str, typer.Option(help="Of the job; left out: the folder's, and some digits.")] = "",
    team: Annotated[str, typer.Option(help="The team; left out: the one of the context.")] = "",
    queue: Annotated[str, typer.Option(help="One of the team's; left out: the first with room.")] = "",
    priority: Annotated[str, typer.Option(help="One of the stack's; left out: normal.")] = "",
    hold_on_failure: HoldTime = "",
    dry_run: DryRun = False,
    detach: Detach = False,
) -> None:
    """Run this folder's code on the team's GPUs, and show its log until it ends.

    `python FILE` starts once per GPU, with torchrun's variables; torchrun, accelerate, mpirun and all else
    once per node. What git tracks goes along as it is on disk. Ctrl-C never stops the job.

    [dim]trainyard run --gpus 16 -- python train.py --lr 3e-4
    trainyard run job.yaml
    trainyard run job.yaml --gpus 8 --dry-run[/]
    """
    from trainyard.member.asked import Asked, minutes_of
    from trainyard.member.run import run_job

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
    asked = Asked(
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
    stack: StackName = "local",
    context: Context = "",
    name: Annotated[str, typer.Option(help="Of the new job; left out: the old one's, and some digits.")] = "",
    dry_run: DryRun = False,
    detach: Detach = False,
) -> None:
    """Start exactly what a job ran once more: the same code, image, command, data and size.

    [dim]trainyard rerun tune-3f9a1c[/]
    """
    from trainyard.member.run import rerun_job

    rerun_job(Session(stack, context=context), job, name, dry_run=dry_run, detach=detach)


@app.command()
def jobs(
    stack: StackName = "local",
    context: Context = "",
    output: Output = Form.TEXT,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show each change.")] = False,
) -> None:
    """List the jobs of your teams: their state, GPUs, restarts and nodes, and why they wait or failed.

    [dim]trainyard jobs --context research
    trainyard jobs --watch
    trainyard jobs -o json | jq -r '.[] | select(.state == "failed").name'[/]
    """
    from trainyard.member.listing import show_jobs

    show_jobs(Session(stack, context=context), output, watch=watch)


@app.command()
def queue(stack: StackName = "local", context: Context = "", output: Output = Form.TEXT) -> None:
    """Say what waits and why, what is before it, which GPUs are free, and when it may start.

    A start is a range, and says what it is based on: time limits of jobs, and how long the team's own took.

    [dim]trainyard queue --context research
    trainyard queue -o json | jq '.waiting[0].start'[/]
    """
    from trainyard.member.queue import show_queue

    show_queue(Session(stack, context=context), output)


@app.command()
def login(
    file: Annotated[Path, typer.Argument(help="From who runs the cluster: `trainyard access export`.")],
    allow: Annotated[
        str, typer.Option(metavar="PROGRAM", help="A program that it may run to sign you in.")
    ] = "",
) -> None:
    """Make a context of your kubeconfig by which you reach a cluster as a member of a team.

    [dim]trainyard login training-research.access.yaml
    export TRAINYARD_CONTEXT=training-research[/]
    """
    from trainyard.member.login import log_in

    log_in(Session("local"), file, allowed=allow)


@app.command()
def logs(
    name: OptionalJob = "",
    stack: StackName = "local",
    context: Context = "",
    rank: Annotated[int | None, typer.Option(min=0, help="The node of this rank alone.")] = None,
    node: Annotated[int | None, typer.Option(min=0, help="This node alone, counted from 0.")] = None,
    attempt: Annotated[
        int | None, typer.Option(min=0, help="This start of the job's pods alone, from 0.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay until the job ends.")] = False,
) -> None:
    """Print what a job has written: all nodes, all attempts, after their pods are gone too.

    Of several nodes each line says which one wrote it; of one node lines are as they were written.

    [dim]trainyard logs digits
    trainyard logs digits -f --rank 0
    trainyard logs digits --attempt 1 --node 3 > node-3.log[/]
    """
    from trainyard.member.logs import ALL, Selection, show_logs

    rank, node, attempt = (ALL if each is None else each for each in (rank, node, attempt))
    chosen = Selection(rank=rank, node=node, attempt=attempt)
    show_logs(Session(stack, context=context), name, chosen, follow=follow)


@app.command()
def stacks(name: JobName, stack: StackName = "local", context: Context = "") -> None:
    """Print where each thread of each rank of a running job is.

    Ranks that train with trainyard_train answer, also while they wait in a library; others are named.

    [dim]trainyard stacks digits[/]
    """
    from trainyard.member.stacks import show_stacks

    show_stacks(Session(stack, context=context), name)


@app.command()
def bundle(
    name: JobName,
    stack: StackName = "local",
    context: Context = "",
    to: Annotated[Path | None, typer.Option(help="The archive; left out: JOB-TIME.tar.gz here.")] = None,
) -> None:
    """Pack all that is known of a job into one archive: for whoever looks for what went wrong.

    The logs of all nodes and attempts, the stacks of ranks that run, events, and the job's objects, with the
    values of variables and arguments that are named as secrets left out. Logs are as the job wrote them.

    [dim]trainyard bundle digits
    trainyard bundle digits --to digits.tar.gz[/]
    """
    from trainyard.member.bundle import write_bundle

    session = Session(stack, context=context)
    session.console.print(write_bundle(session, name, to), highlight=False)


@app.command()
def pause(name: JobName, stack: StackName = "local", context: Context = "") -> None:
    """Let a job save and leave its GPUs; it keeps its name, and goes on with `trainyard resume`.

    Its pods get the notice of a preemption: our training package commits a checkpoint and leaves within the
    grace period; a program that does not heed SIGTERM goes back to its last checkpoint.

    [dim]trainyard pause digits --context research[/]
    """
    from trainyard.member.pause import pause_job

    pause_job(Session(stack, context=context), name)


@app.command()
def resume(name: JobName, stack: StackName = "local", context: Context = "") -> None:
    """Put a paused job back into its queue; it goes on from its newest checkpoint."""
    from trainyard.member.pause import resume_job

    resume_job(Session(stack, context=context), name)


secret = typer.Typer(no_args_is_help=True, help="Secrets of a team, for its jobs; nobody reads one back.")
app.add_typer(secret, name="secret")
SecretName = Annotated[
    str, typer.Argument(metavar="NAME", help="As the variable that your program reads: HF_TOKEN.")
]
Team = Annotated[str, typer.Option(help="The team; left out: the only one that you are in.")]


@secret.command(name="set")
def set_secret(name: SecretName, stack: StackName = "local", context: Context = "", team: Team = "") -> None:
    """Keep a value for the team's jobs. It is asked for, hidden, or read from the standard input.

    Each value is a new Secret, which it names; the value is in no argument, log, output or job's object.

    [dim]trainyard secret set HF_TOKEN --context research
    pass show hf | trainyard secret set HF_TOKEN[/]
    """
    from trainyard.member import secrets

    secrets.set_secret(Session(stack, context=context), name, team)


@secret.command(name="ls")
def list_secrets(
    stack: StackName = "local", context: Context = "", team: Team = "", output: Output = Form.TEXT
) -> None:
    """List names and versions, never values. Members of a team may not: it takes an administrator."""
    from trainyard.member import secrets

    secrets.list_secrets(Session(stack, context=context), team, output)


@secret.command(name="rm")
def remove_secret(
    name: SecretName, stack: StackName = "local", context: Context = "", team: Team = ""
) -> None:
    """Remove all versions of a secret. Members of a team may not: it takes an administrator."""
    from trainyard.member import secrets

    secrets.remove_secret(Session(stack, context=context), name, team)


Rank = Annotated[int, typer.Option(min=0, help="The rank, counted over all nodes of the job.")]


@app.command(context_settings={"ignore_unknown_options": True})
def shell(
    name: JobName,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- PROGRAM …]", help="Run this in place of a shell.")
    ] = None,
    stack: StackName = "local",
    context: Context = "",
    rank: Rank = 0,
) -> None:
    """Open a shell beside a rank of a running job, or run one program there and end with its exit code.

    [dim]trainyard shell digits --rank 3
    trainyard shell digits -- nvidia-smi[/]
    """
    from trainyard.member.shell import open_shell

    raise typer.Exit(open_shell(Session(stack, context=context), name, rank, command or ()))


@app.command()
def forward(
    name: JobName,
    port: Annotated[str, typer.Argument(metavar="[LOCAL:]PORT", help="Such as 6006, or 16006:6006.")],
    stack: StackName = "local",
    context: Context = "",
    rank: Rank = 0,
) -> None:
    """Reach a port of a running job's pod on this machine (127.0.0.1 alone), until Ctrl-C.

    [dim]trainyard forward digits 6006           TensorBoard of rank 0
    trainyard forward digits 0:8000 --rank 8    on any port that is free here[/]
    """
    from trainyard.member.forward import forward_port

    forward_port(Session(stack, context=context), name, port, rank)
