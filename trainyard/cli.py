"""Defines the commands of `trainyard` except the team members' ones, and converts expected failures to
messages and exit codes.
"""

from __future__ import annotations

import errno
import inspect
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.errors import ExitCode, HostError, InputError, InterruptedByUser, Problem, TrainyardError
from infra.stackfile.source import FLEET_KEY, STACK_KEY, read
from trainyard.commands import member
from trainyard.commands.member import Output, StackName
from trainyard.forms import CatalogPart, Form, ReportForm
from trainyard.stack.session import Session

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="trainyard",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="GPU training clusters from one stack file.\n\n"
    "A stack is [bold]stacks/Pulumi.NAME.yaml[/]. `trainyard up` creates its cluster and runs its training"
    " job; `trainyard down` deletes the cluster and retains the checkpoints.",
    epilog="Exit codes: 0 done · 1 started and failed · 2 wrong input, nothing started · 3 the host lacks"
    " something, nothing started · 4 the job failed · 130 interrupted, run again to continue.",
)

REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC})
"""The kernel's errors for a folder that is not writable, or full."""

StackArgument = Annotated[str, typer.Argument(metavar="[STACK]", help="The stack, like --stack.")]
ReportOutput = Annotated[ReportForm, typer.Option("--output", "-o", help="Output format on stdout.")]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="TRAINYARD_CONTEXT",
        help="A context of your kubeconfig that reaches the cluster. Default: the stack's kubeconfig.",
    ),
]


@app.command()
def up(
    stack: StackName = "local",
    job: Annotated[bool, typer.Option(help="Also run the stack's training job.")] = True,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Look at what exists first, and create what is gone.")
    ] = False,
) -> None:
    """Create or update the stack's cluster, and run its training job.

    A second run applies only changes of the stack file. Ctrl-C is safe at any time: run it again, and it
    continues.
    """
    from trainyard.commands.up import bring_up

    bring_up(Session(stack), run_job=job, refresh=refresh)


@app.command()
def down(
    stack: StackName = "local",
    purge: Annotated[bool, typer.Option(help="Also delete the checkpoints and the object store.")] = False,
) -> None:
    """Drain the queues and delete the cluster. Checkpoints are retained, unless --purge."""
    from trainyard.commands.down import take_down

    take_down(Session(stack), purge=purge)


@app.command()
def preview(stack: StackName = "local") -> None:
    """Show what `up` would change, under all policies; change nothing."""
    from trainyard.commands.up import show_preview

    show_preview(Session(stack))


@app.command(name="bootstrap")
def bootstrap_backend(
    bucket: Annotated[str, typer.Argument(help="Name of the bucket; on Azure, of the storage account.")],
    stack: StackName = "local",
    region: Annotated[str, typer.Option(help="Region. Default: the stack's region.")] = "",
    output: Output = Form.TEXT,
) -> None:
    """Create the bucket of the engine's state in a stack's cloud, and the key for its secrets.

    The bucket is versioned, private, TLS only, in a region that the stack's residency permits. A second run
    restores its settings. The command prints the engine's settings, and the rights that its user needs.

    [dim]eval "$(trainyard bootstrap example-pulumi-state -s aws)"
    pulumi stack init aws --secrets-provider "$SECRETS_PROVIDER"[/]
    """
    from trainyard.commands.bootstrap import bootstrap

    bootstrap(Session(stack), bucket, region, output)


@app.command(name="deploy-role")
def deploy_role(
    stack: StackName = "local",
    github: Annotated[str, typer.Option(metavar="OWNER/NAME", help="The repository on GitHub.")] = "",
    gitlab: Annotated[str, typer.Option(metavar="GROUP/PROJECT", help="The project on GitLab.")] = "",
    branch: Annotated[str, typer.Option(help="GitLab: the branch that runs `up`.")] = "main",
    host: Annotated[str, typer.Option(help="Host of your GitLab.")] = "gitlab.com",
    read: Annotated[bool, typer.Option("--read", help="The read-only role for previews.")] = False,
) -> None:
    """Print the minimum rights of a pipeline that runs `up`, and its role's trust policy, as JSON.

    Only the stack file determines them. An administrator creates the role once.

    [dim]trainyard deploy-role -s aws --github team/research
    trainyard deploy-role -s aws --github team/research --read[/]
    """
    from trainyard.commands.deploy_role import pipeline_of, show_deploy_role

    show_deploy_role(Session(stack), pipeline_of(github, gitlab, read_only=read, branch=branch, host=host))


@app.command()
def adopt(stack: StackName = "local") -> None:
    """Import the stack's existing cloud resources into an empty state.

    After `destroy`: the bucket, filesystem and keys that it retained. After the loss of the state: all
    resources that can be found by name, location and tags. Nothing in the cloud is changed; the next `up`
    continues from there. `trainyard up` does this itself if the state is empty.

    [dim]trainyard adopt -s aws && pulumi preview -s aws[/]
    """
    from trainyard.commands.up import adopt_what_exists

    adopt_what_exists(Session(stack))


FailedType = Annotated[str, typer.Option(metavar="TYPE[:NTH]", help="Fail the NTH creation of this type.")]
PoolWithoutCapacity = Annotated[
    str, typer.Option(metavar="POOL", help="The cloud has no capacity for this pool.")
]
CrashAfter = Annotated[
    int, typer.Option(metavar="N", min=0, help="Kill the engine (-9) after N resources are created.")
]
Slow = Annotated[bool, typer.Option("--slow", help="Delay every operation.")]
Origin = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="ADDRESS|inside",
        help="Where `up` runs: this public address, or `inside` the cluster's network. Default: a network of"
        " the stack's `public_cidrs`, else an address outside.",
    ),
]
Refusals = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        envvar="TRAINYARD_REFUSE",
        help="The cloud refuses in this way; `all`: in every known way. An unknown name lists them.",
    ),
]
Adopt = Annotated[
    bool,
    typer.Option("--adopt", help="Delete the state after `up`; run `up` again after `destroy`; see `adopt`."),
]
AssumedCheckpoint = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="Time of a checkpoint, if it has not been measured."),
]


@app.command(name="rehearse")
def rehearse_stack(
    name: StackArgument = "",
    stack: StackName = "local",
    output: ReportOutput = ReportForm.TEXT,
    fail: FailedType = "",
    insufficient_capacity: PoolWithoutCapacity = "",
    crash_after: CrashAfter = 0,
    slow: Slow = False,
    origin: Origin = "",
    refuse: Refusals = None,
    adopt: Adopt = False,
    assume_checkpoint: AssumedCheckpoint = None,
) -> None:
    """Run the stack's lifecycle on the real engine with fake providers: no credentials, no network.

    Preview, up, up again, refresh, update, destroy, under all policies. Every input is checked against the
    SDK's types; on AWS moto answers the requests, which are checked against botocore's models. A private API
    server answers only `--from inside`. It needs no secrets, so it is safe as a check of pull requests.

    [dim]trainyard rehearse aws-dev
    trainyard rehearse aws --assume-checkpoint 60       before the first measurement
    trainyard rehearse aws --fail NodeGroup:2           does the next `up` repair it?
    trainyard rehearse aws --insufficient-capacity spot
    trainyard rehearse aws --from 198.51.100.4          would `up` reach the API server from there?
    trainyard rehearse aws --refuse spot-empty          what would a user see?
    trainyard rehearse aws --crash-after 40[/]
    """
    from trainyard.commands.rehearse.command import faults_of, refusing, run_rehearsal
    from trainyard.commands.rehearse.project import Assumption

    faults = faults_of(fail=fail, no_capacity=insufficient_capacity, crash_after=crash_after, slow=slow)
    session = Session(name or stack)
    faults = refusing(session, faults, refuse or ())
    assumed = Assumption(assume_checkpoint)
    run_rehearsal(session, faults, assumed, output, adopts=adopt, origin=origin)


@app.command()
def images(
    name: StackArgument = "",
    stack: StackName = "local",
    output: Output = Form.TEXT,
    check: Annotated[bool, typer.Option("--check", help="Check that the registries have each.")] = False,
    archive: Annotated[
        Path | None,
        typer.Option(help="Check this OCI archive as the training image, before it is pushed."),
    ] = None,
    lock: Annotated[bool, typer.Option("--lock", help="Write each digest into the stack file.")] = False,
) -> None:
    """List every image and chart of a stack.

    With a mirror in the stack file they are listed at the mirror. --check asks the registries for each, with
    the logins of ~/.docker/config.json, checks that the training images have the libraries of the pools'
    fabrics, and fails if something is missing. --lock writes the present digest of each tag into the stack
    file (images.digests), which nodes then pull.

    [dim]trainyard images onprem
    trainyard images onprem --lock
    trainyard images onprem --check
    trainyard images onprem --archive torch.oci.tar
    trainyard images onprem -o json | jq -r '.images[]'[/]
    """
    if lock:
        from trainyard.images.lock import lock_images

        lock_images(Session(name or stack))
        return
    from trainyard.images.images import show_images

    show_images(Session(name or stack), output, check=check, archive=archive)


@app.command()
def price(
    name: StackArgument = "", stack: StackName = "local", output: ReportOutput = ReportForm.TEXT
) -> None:
    """Show what a stack costs per hour and month, by pool and storage, and how old each price is.

    Prices are the catalogue's, each with source and date. Missing prices, and those older than 90 days, are
    listed; the totals cover everything that has a price.

    [dim]trainyard price aws
    trainyard price aws -o json | jq .usdPerHour[/]
    """
    from trainyard.cost.price import show_price

    session = Session(name or stack)
    show_price(session.stack, output, session.console)


@app.command()
def measure(
    metrics: Annotated[
        Path | None,
        typer.Argument(help="metrics.jsonl of a run. Default: the newest run of the stack's job."),
    ] = None,
    stack: StackName = "local",
    assume: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS", min=0, help="Before the first `up`: assume this time, for two weeks."
        ),
    ] = None,
    context: Context = "",
) -> None:
    """Write the time of a run's longest checkpoint beside the stack file, for the spot policies.

    Policies refuse spot nodes with accelerators until it is known whether a checkpoint fits into their
    preemption notice, with this filesystem and model. Without a file, a small pod of the job's team reads
    the newest run's metrics on the team's volume.

    [dim]trainyard measure -s aws --assume 60           before the first `up`
    trainyard measure -s aws                       after a checkpoint of the stack's job
    trainyard measure runs/run-1/metrics.jsonl -s aws[/]
    """
    from trainyard.commands import measure as measuring

    session = Session(stack, context=context)
    session.stack  # noqa: B018 -- wrong input ends here
    if metrics is not None:
        file = measuring.measure(metrics, session.stack_file)
    elif assume is not None:
        file = measuring.assume(assume, session.stack_file)
    else:
        file = measuring.measure_on_cluster(session)
    session.console.print(f"{file}: {file.read_text().strip()}", highlight=False)


@app.command(name="catalog")
def list_catalog(
    what: Annotated[CatalogPart, typer.Argument(help="What to list.")] = CatalogPart.MACHINES,
    cloud: Annotated[str, typer.Option(help="Only this cloud, such as aws.")] = "",
    accelerator: Annotated[str, typer.Option(help="Model, such as h200.")] = "",
    fabric: Annotated[str, typer.Option(help="Fabric class, such as efav3.")] = "",
    region: Annotated[
        str, typer.Option(help="Only machines that are known to be offered in this region.")
    ] = "",
    output: ReportOutput = ReportForm.TEXT,
) -> None:
    """List machines, regions, fabrics or prices that stack files can name. Filters are combined.

    [dim]trainyard catalog --accelerator h200
    trainyard catalog prices --cloud aws --region us-east-2
    trainyard catalog regions --cloud gcp -o json[/]
    """
    from trainyard.commands.catalog import filters_of, show_catalog

    filters = filters_of(cloud=cloud, accelerator=accelerator, fabric=fabric, region=region)
    show_catalog(what, filters, output, _console())


@app.command()
def validate(stack: StackName = "local") -> None:
    """Check the stack file, and report every problem with its line."""
    from trainyard.stack.state import declared_backend

    session = Session(stack)
    if session.is_fleet:
        workers = ", ".join(f"{worker.name} in {worker.place.name}" for worker in session.fleet.workers)
        session.console.print(f"[green]✓[/] {session.stack_file.name} is valid: {workers}", highlight=False)
        _print_overrides(session, FLEET_KEY)
        return
    pools = ", ".join(f"{pool.name} × {pool.num_nodes}" for pool in session.stack.pools)
    declared_backend(session.stack_file)
    session.console.print(f"[green]✓[/] {session.stack_file.name} is valid: {pools}", highlight=False)
    _print_overrides(session, STACK_KEY)


def _print_overrides(session: Session, key: str) -> None:
    """Print the answers (`trainyard:stack.PATH`) that differ from the section's values."""
    _, source = read(session.stack_file, key)
    for each in source.overrides:
        session.console.print(f"  {each}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def schema(
    output: ReportOutput = ReportForm.JSON,
    package: Annotated[bool, typer.Option(help="Print the schema of the component package instead.")] = False,
) -> None:
    """Print the JSON Schema of stack files for editors; with `-o markdown` the reference page.

    With --package the schema of the component package (docs/package.md), from the same models.

    [dim]trainyard schema > stacks/schema.json
    # yaml-language-server: $schema=schema.json     (the first line of a stack file)[/]
    """
    if package:
        from trainyard.component import schema as of_package

        sys.stdout.write(of_package.as_text(of_package.package_schema()))
        return
    from trainyard.commands.reference import page
    from trainyard.stack.schema import as_text, file_schema

    found = file_schema()
    sys.stdout.write(as_text(found) if output is ReportForm.JSON else page(found))


@app.command()
def status(stack: StackName = "local", context: Context = "") -> None:
    """Show the nodes and the jobs. With --context no stack file is needed.

    [dim]trainyard status -s aws
    trainyard status --context datacenter[/]
    """
    from trainyard.commands.status import show_status

    show_status(Session(stack, context=context))


@app.command()
def doctor(stack: StackName = "local") -> None:
    """Show what this host, with -s also the cloud account, has and lacks, and what `up` would install."""
    from trainyard.commands.doctor import examine

    raise typer.Exit(examine(Session(stack)))


@app.command()
def prepare(
    stack: StackName = "local",
    package: Annotated[bool, typer.Option(help="Also for programs that use the component package.")] = False,
    tests: Annotated[bool, typer.Option(help="Also for Trainyard's own tests.")] = False,
) -> None:
    """Install, download or build everything that `up` needs; start nothing."""
    from trainyard.commands.up import prepare_host

    prepare_host(Session(stack), for_package=package, for_tests=tests)


@app.command()
def submit(
    stack: StackName = "local",
    follow: Annotated[bool, typer.Option(help="Follow the job until it ends.")] = True,
    run: Annotated[str, typer.Option(metavar="RUN", help="Continue this run of the job.")] = "",
    context: Context = "",
) -> None:
    """Submit the stack's training job to its queue, as a new run.

    It connects with the stack's output `kubeconfig`, or with --context as your user.

    [dim]trainyard submit -s aws
    trainyard submit -s aws --context research --no-follow[/]
    """
    from trainyard.jobs.submit import submit_stack_job

    submit_stack_job(Session(stack, context=context), follows=follow, run=run)


@app.command()
def search(
    file: Annotated[Path, typer.Argument(help="The search as YAML; see docs/training.md.")],
    stack: StackName = "local",
    context: Context = "",
) -> None:
    """Submit a hyperparameter search: each trial is a job in the queue; poor trials end early."""
    from trainyard.commands.search import submit_search

    submit_search(Session(stack, context=context), file)


@app.command()
def preempt(
    node: Annotated[str, typer.Argument(help="The node's name, as in `trainyard status`.")],
    stack: StackName = "local",
    notice: Annotated[float, typer.Option(min=1, help="Seconds from the notice to termination.")] = 30,
    no_notice: Annotated[bool, typer.Option("--no-notice", help="Kill it without a notice.")] = False,
    give_back: Annotated[bool, typer.Option("--return", help="Bring a preempted node back.")] = False,
) -> None:
    """Preempt a local node as a cloud does: preemption notice, taint, grace period, termination.

    [dim]trainyard preempt spot-0                 30 s of notice
    trainyard preempt spot-0 --no-notice     killed without a notice
    trainyard preempt spot-0 --return        capacity is back[/]
    """
    from trainyard.jobs.spot import give_node_back, take_node

    session = Session(stack)
    if give_back:
        give_node_back(session, node)
    else:
        take_node(session, node, None if no_notice else notice)


@app.command()
def env(stack: StackName = "local") -> None:
    """Print the environment for `pulumi`, `kubectl` and `helm` on this stack.

    [dim]eval "$(trainyard env -s local)" && pulumi preview -s local --config-file "$TRAINYARD_CONFIG"[/]
    """
    from trainyard.commands.environment import exports

    sys.stdout.write(exports(Session(stack)))


@app.command(hidden=True)
def credential(
    context: Annotated[str, typer.Argument(help="A context of your kubeconfig.")] = "",
    stack: StackName = "local",
    member: Annotated[str, typer.Option(help="Embedded cluster: a member of this team.")] = "",
) -> None:
    """Print a credential for Kubernetes clients whose kubeconfig names this command."""
    from infra.targets.kubeconfig import credential as found
    from trainyard.commands.access_export import member_credential

    made = member_credential(Session(stack), member) if member else found(context)
    sys.stdout.write(json.dumps(made))


access = typer.Typer(no_args_is_help=True, help="Give team members access to a cluster.")
app.add_typer(access, name="access")


@access.command(name="export")
def export_access(
    team: Annotated[str, typer.Option(help="The team whose members get access.")],
    stack: StackName = "local",
    sign_in: Annotated[
        str,
        typer.Option(metavar="COMMAND", help="The exec plugin that signs them in. Default: the stack's."),
    ] = "",
    to: Annotated[Path | None, typer.Option(help="The file. Default: STACK-TEAM.access.yaml.")] = None,
) -> None:
    """Write a file, without secrets, with which a team's members reach the cluster.

    They run `trainyard login FILE`.

    [dim]trainyard access export --team research -s aws
    trainyard access export --team research -s onprem --sign-in 'kubectl oidc-login get-token …'[/]
    """
    from trainyard.commands.access_export import export_access as export

    session = Session(stack)
    session.console.print(export(session, team, sign_in, to), highlight=False)


app.add_typer(member.app)


def _unwrap_help(of: typer.Typer) -> None:
    """Let the terminal wrap the paragraphs of help texts: typer takes a docstring's lines as they are.

    Examples stand in separate paragraphs, which begin with `[dim]`.
    """
    for command in of.registered_commands:
        paragraphs = (inspect.getdoc(command.callback) or "").split("\n\n")
        command.help = "\n\n".join(
            each if each.startswith("[dim]") else " ".join(each.split()) for each in paragraphs
        )
    for group in of.registered_groups:
        if group.typer_instance is not None:
            _unwrap_help(group.typer_instance)


_unwrap_help(app)


def app_of(words: Sequence[str]) -> typer.Typer:
    """Return the command line with only the command that is named: Typer takes 2 ms to build each.

    Where the first word names none (an option, a group, nothing), it has all commands.
    """
    known = [*app.registered_commands, *member.app.registered_commands]
    named = [each for each in known if [each.name or getattr(each.callback, "__name__", "")] == [*words[:1]]]
    if not named:
        return app
    # Without options of its own: typer imports pydantic to read one, before the command can begin.
    only = typer.Typer(
        rich_markup_mode="rich", pretty_exceptions_enable=False, add_completion=False, add_help_option=False
    )
    only.registered_commands = named
    only.callback()(lambda: None)  # a Typer of one command without a callback takes no command's name
    return only


def main() -> None:
    """Run the command line; every expected failure ends in its text and its exit code."""
    try:
        # 130 after Ctrl-C, or the code of a `typer.Exit`
        code = app_of(sys.argv[1:])(standalone_mode=False, prog_name="trainyard")
    except KeyboardInterrupt:  # while typer still reads the commands' options
        code = ExitCode.INTERRUPTED
    except InterruptedByUser as stop:
        _report_interrupt(stop.text)
        sys.exit(stop.exit_code)
    except TrainyardError as error:
        code = _report(error)
    except typer.TyperException as error:  # a wrong flag or argument
        code = _report_usage(error)
    except Exception as error:
        code = _report(_explained(error))
    if code == ExitCode.INTERRUPTED:
        _report_interrupt("Run the same command again: it continues from here.")
    sys.exit(code)


def _report_usage(error: typer.TyperException) -> ExitCode:
    from trainyard.commands.usage import problem_of

    if problem := problem_of(error):
        return _report(InputError([problem]))
    error.show()  # type: ignore[attr-defined]
    return ExitCode.WRONG_INPUT


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console  # 40 ms, which a command without a table or an error does not need

    return Console(stderr=stderr)


def _explained(error: Exception) -> TrainyardError:
    """Return the error as problems with their next step; re-raise an unforeseen one."""
    if isinstance(error, ConnectionError):
        from infra.clients.kubernetes import NoAnswer

        return NoAnswer(str(error))
    if isinstance(error, OSError) and error.errno in REFUSALS:
        fix = "make it writable, or set TRAINYARD_STATE and TRAINYARD_CACHE to other folders"
        problem = Problem(str(error.filename), str(error.strerror), "a writable filesystem", fix)
        return HostError([problem])
    if isinstance(error, ModuleNotFoundError):
        from engine.paths import Paths
        from trainyard.stack.packages import Packages

        if packages := Packages.providing(error.name or "", Paths.from_environment()):
            return HostError([packages.problem(str(error))])
    raise error


def _report_interrupt(text: str) -> None:
    from rich.markup import escape

    _console(stderr=True).print(f"[yellow]Interrupted.[/] {escape(text)}", highlight=False, soft_wrap=True)


def _report(error: TrainyardError) -> ExitCode:
    from rich.markup import escape

    errors = _console(stderr=True)
    number = len(error.problems)
    errors.print(f"[red bold]{number} problem{'s' if number > 1 else ''}[/]")
    for problem in error.problems:
        errors.print(escape(str(problem)), highlight=False, soft_wrap=True)
    return error.exit_code
