"""The command line: thin over the packages that do the work."""

from __future__ import annotations

import contextlib
import errno
import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from infra.errors import ExitCode, InterruptedByUser, MachineError, Problem, TrainyardError
from infra.spec.source import FLEET_KEY, STACK_KEY, read
from trainyard.forms import CatalogPart, Form
from trainyard.member import commands as member
from trainyard.session import Session

app = typer.Typer(
    name="trainyard",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="GPU training clusters from one stack file: bring one up, train on it, lose a spot node, go on.\n\n"
    "A stack is [bold]stacks/Pulumi.NAME.yaml[/]. `trainyard up` makes the cluster that it declares and runs"
    " its training job; `trainyard down` removes the cluster and keeps the checkpoints.",
    epilog="Exit codes: 0 done · 1 started and failed · 2 wrong input, nothing started · 3 the machine lacks"
    " something, nothing started · 4 the job failed · 130 interrupted, run again to go on.",
)

REFUSALS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC})
"""What the kernel says when a folder is not ours to write to, or full."""

StackName = Annotated[
    str,
    typer.Option("--stack", "-s", envvar="TRAINYARD_STACK", help="The stack, as in stacks/Pulumi.NAME.yaml."),
]
StackArgument = Annotated[str, typer.Argument(metavar="[STACK]", help="The stack; the same as --stack.")]
Output = Annotated[Form, typer.Option("--output", "-o", help="Form of the result on stdout.")]
Context = Annotated[
    str,
    typer.Option(
        "--context",
        envvar="TRAINYARD_CONTEXT",
        help="A context of your kubeconfig that reaches the cluster; left out: the stack's own way in.",
    ),
]
JobName = Annotated[str, typer.Argument(help="The job; left out: the stack's own.")]


@app.command()
def up(
    stack: StackName = "local",
    job: Annotated[bool, typer.Option(help="Run the stack's training job as well.")] = True,
) -> None:
    """Make the cluster that the stack declares, and run its training job.

    A second run changes only what the stack file changed. Ctrl-C is safe at any moment: run it again
    and it goes on where it stopped.
    """
    from trainyard.up import bring_up

    bring_up(Session(stack), run_job=job)


@app.command()
def down(
    stack: StackName = "local",
    purge: Annotated[bool, typer.Option(help="Remove the checkpoints and the object store too.")] = False,
) -> None:
    """Drain the queues, then remove the cluster. Checkpoints stay, unless --purge."""
    from trainyard.down import take_down

    take_down(Session(stack), purge=purge)


@app.command()
def preview(stack: StackName = "local") -> None:
    """Show what `up` would change, evaluated by the policies; change nothing."""
    from trainyard.up import show_preview

    show_preview(Session(stack))


@app.command(name="bootstrap")
def bootstrap_backend(
    bucket: Annotated[str, typer.Argument(help="Name of the bucket; on Azure, of the storage account.")],
    stack: StackName = "local",
    region: Annotated[str, typer.Option(help="Where; left out: the stack's own region.")] = "",
    output: Output = Form.TEXT,
) -> None:
    """Make the place of the engine's state in a stack's cloud: a bucket with versions, and a key for secrets.

    Private, TLS only, encrypted by that key, in a region that the stack's residency permits. Run again, it
    puts right what was changed. It prints the engine's settings, and the rights that its user needs.

    [dim]eval "$(trainyard bootstrap example-pulumi-state -s aws)"
    pulumi stack init aws --secrets-provider "$SECRETS_PROVIDER"[/]
    """
    from trainyard.bootstrap import bootstrap

    bootstrap(Session(stack), bucket, region, output)


@app.command(name="deploy-role")
def deploy_role(
    stack: StackName = "local",
    github: Annotated[str, typer.Option(metavar="OWNER/NAME", help="The repository on GitHub.")] = "",
    gitlab: Annotated[str, typer.Option(metavar="GROUP/PROJECT", help="The project on GitLab.")] = "",
    branch: Annotated[str, typer.Option(help="GitLab: the branch that is brought up.")] = "main",
    host: Annotated[str, typer.Option(help="A GitLab of your own.")] = "gitlab.com",
    read: Annotated[
        bool, typer.Option("--read", help="The role of previews, which changes nothing.")
    ] = False,
) -> None:
    """Print the least rights of a pipeline that brings the stack up, and who may take its role; as JSON.

    Made of what the stack declares, with nobody asked. An administrator makes the role, once.

    [dim]trainyard deploy-role -s aws --github team/research
    trainyard deploy-role -s aws --github team/research --read[/]
    """
    from trainyard.deploy_role import pipeline_of, show_deploy_role

    show_deploy_role(Session(stack), pipeline_of(github, gitlab, reads=read, branch=branch, host=host))


@app.command()
def adopt(stack: StackName = "local") -> None:
    """Take into the state what the cloud has of the stack already.

    After `destroy`: the bucket, filesystem and keys that it kept. After a state was lost: all that can be
    found by name, place and tags. Nothing in the cloud is changed; the next `up` goes on with it.
    `trainyard up` does this by itself where a state is empty.

    [dim]trainyard adopt -s aws && pulumi preview -s aws[/]
    """
    from trainyard.up import adopt_what_exists

    adopt_what_exists(Session(stack))


FailedType = Annotated[str, typer.Option(metavar="TYPE[:NTH]", help="Let the NTH creation of a type fail.")]
PoolWithoutCapacity = Annotated[
    str, typer.Option(metavar="POOL", help="Let the cloud have no machines for a pool.")
]
CrashAfter = Annotated[
    int, typer.Option(metavar="N", min=0, help="Kill the engine (-9) when N resources are made.")
]
Slow = Annotated[bool, typer.Option("--slow", help="Let every operation take its time.")]
Origin = Annotated[
    str,
    typer.Option(
        "--from",
        metavar="ADDRESS|inside",
        help="Run `up` at this address of the internet, or `inside` the cluster's network; left out: in"
        " a network that the stack's `public_cidrs` names, else somewhere outside.",
    ),
]
Refusals = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        envvar="TRAINYARD_REFUSE",
        help="Let the cloud refuse so; all: in every way. Another word lists them.",
    ),
]
Adopt = Annotated[
    bool,
    typer.Option("--adopt", help="Lose the state on the way, and come back after `destroy`: see `adopt`."),
]
AssumedCheckpoint = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", min=0, help="Take a checkpoint to last so long, where none is measured."),
]


@app.command(name="rehearse")
def rehearse_stack(
    name: StackArgument = "",
    stack: StackName = "local",
    output: Output = Form.TEXT,
    fail: FailedType = "",
    insufficient_capacity: PoolWithoutCapacity = "",
    crash_after: CrashAfter = 0,
    slow: Slow = False,
    origin: Origin = "",
    refuse: Refusals = None,
    adopt: Adopt = False,
    assume_checkpoint: AssumedCheckpoint = None,
) -> None:
    """Play the stack's whole life with nothing real behind it.

    Preview, up, up again, refresh, update, destroy: the real engine and the policies, with fakes in
    place of the providers; no credentials, no network.
    Every input is held against the SDK's types; on AWS every request against botocore's models, and moto
    answers it. An API server answers only where `up` runs in a network that reaches it: a private one
    answers `--from inside` alone. The check for a pull request that needs no secrets.

    [dim]trainyard rehearse aws-dev
    trainyard rehearse aws --assume-checkpoint 60       nothing is measured yet; the report says so
    trainyard rehearse aws --fail NodeGroup:2           does the next `up` put it right?
    trainyard rehearse aws --insufficient-capacity spot
    trainyard rehearse aws --from 198.51.100.4          would `up` reach the API server from there?
    trainyard rehearse aws --refuse spot-empty          what would a user see, and do?
    trainyard rehearse aws --crash-after 40[/]
    """
    from trainyard.rehearse.command import faults_of, refusing, run_rehearsal
    from trainyard.rehearse.project import Assumption

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
    check: Annotated[bool, typer.Option("--check", help="Ask the registries for each of them.")] = False,
    archive: Annotated[
        Path | None,
        typer.Option(help="Look into an OCI archive, which is not pushed yet, as the training image."),
    ] = None,
    lock: Annotated[
        bool, typer.Option("--lock", help="Write the digest of each into the stack file.")
    ] = False,
) -> None:
    """List every image and chart that a stack brings onto its nodes.

    With a mirror in the stack file they are listed where the mirror has them. --check asks the registries for
    each, with the logins of ~/.docker/config.json, looks into the training images for the libraries that the
    pools' fabrics need, and fails with what is not to be had. --lock asks for the digest of each tag,
    and writes it into the stack file (images.digests): nodes then pull what was there when you looked.

    [dim]trainyard images onprem
    trainyard images onprem --lock
    trainyard images onprem --check
    trainyard images onprem --archive torch.oci.tar
    trainyard images onprem -o json | jq -r '.images[]'[/]
    """
    if lock:
        from trainyard.lock import lock_images

        lock_images(Session(name or stack))
        return
    from trainyard.images import show_images

    show_images(Session(name or stack), output, check=check, archive=archive)


@app.command()
def price(name: StackArgument = "", stack: StackName = "local", output: Output = Form.TEXT) -> None:
    """Say what a stack costs per hour and month, by pool and storage, and how old each price is.

    Prices are the catalogue's, each with its source and day. One that is missing, or older than 90 days, is
    said to be so: the totals cover what has a price, and no other figure stands in.

    [dim]trainyard price aws
    trainyard price aws -o json | jq .usdPerHour[/]
    """
    from trainyard.price import show_price

    session = Session(name or stack)
    show_price(session.stack, output, session.console)


@app.command()
def measure(
    metrics: Annotated[
        Path | None,
        typer.Argument(help="metrics.jsonl of a run; left out: the newest run of the stack's job."),
    ] = None,
    stack: StackName = "local",
    assume: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="Before the first `up`: take this time, for two weeks."),
    ] = None,
    context: Context = "",
) -> None:
    """Keep the time of a run's longest checkpoint beside the stack file, for the policies.

    Spot machines with accelerators are refused until it is known whether a checkpoint fits into their notice.
    It has to be measured on the stack itself: on its filesystem, with its model. Without a file a small pod
    of the job's team reads the newest run's metrics on the team's volume.

    [dim]trainyard measure -s aws --assume 60           before the first `up`
    trainyard measure -s aws                       once the stack's job has saved
    trainyard measure runs/run-1/metrics.jsonl -s aws[/]
    """
    from trainyard import measure as measuring

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
    cloud: Annotated[str, typer.Option(help="aws, gcp, azure or coreweave.")] = "",
    accelerator: Annotated[str, typer.Option(help="Model, such as h200.")] = "",
    fabric: Annotated[str, typer.Option(help="Fabric class, such as efav3.")] = "",
    region: Annotated[str, typer.Option(help="Offered there, as far as is known.")] = "",
    output: Output = Form.TEXT,
) -> None:
    """List machines, regions, fabrics or prices that stack files can name. All filters must hold.

    [dim]trainyard catalog --accelerator h200
    trainyard catalog prices --cloud aws --region us-east-2
    trainyard catalog regions --cloud gcp -o json[/]
    """
    from trainyard.catalog import filters_of, show_catalog

    filters = filters_of(cloud=cloud, accelerator=accelerator, fabric=fabric, region=region)
    show_catalog(what, filters, output, Console())


@app.command()
def validate(stack: StackName = "local") -> None:
    """Check the stack file alone: every problem at once, with its line."""
    from trainyard.state import declared_backend

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
    """Say which values are answers (`trainyard:stack.PATH`) that differ from what the section itself says."""
    _, source = read(session.stack_file, key)
    for each in source.overrides:
        session.console.print(f"  {each}", highlight=False, markup=False, soft_wrap=True)


@app.command()
def schema(
    output: Output = Form.JSON,
    package: Annotated[bool, typer.Option(help="The schema of the component package instead.")] = False,
) -> None:
    """Print the JSON Schema of stack files, for editors; `-o markdown`: their reference page.

    With --package the schema of the component package (docs/package.md), made from the same models.

    [dim]trainyard schema > stacks/schema.json
    # yaml-language-server: $schema=schema.json     (the first line of a stack file)[/]
    """
    if package:
        from trainyard.component import schema as of_package

        sys.stdout.write(of_package.as_text(of_package.package_schema()))
        return
    from trainyard.reference import page
    from trainyard.schema import as_text, file_schema

    found = file_schema()
    sys.stdout.write(as_text(found) if output == Form.JSON else page(found))


@app.command()
def migrate(
    file: Annotated[Path, typer.Argument(help="A stack file, or a fleet's.")],
    write: Annotated[bool, typer.Option("--write", help="Rewrite the file.")] = False,
    since: Annotated[int | None, typer.Option(help="Its version, where `schema:` is mistaken.")] = None,
) -> None:
    """Show what the present `schema:` changes in an older stack file, as a diff; comments stay.

    Files from before the first release may say `schema: 1` and be of version 0: --since 0.

    [dim]trainyard migrate stacks/Pulumi.prod.yaml --write[/]
    """
    from trainyard.migrate import migrate_file

    migrate_file(file, Console(), write=write, since=since)


@app.command()
def status(stack: StackName = "local", context: Context = "") -> None:
    """Show nodes and jobs as they are now. With --context a stack file is not needed.

    [dim]trainyard status -s aws
    trainyard status --context datacenter[/]
    """
    from trainyard.status import show_status

    show_status(Session(stack, context=context))


@app.command()
def doctor(stack: StackName = "local") -> None:
    """Say what is on this machine, what is missing, what `up` would do about it, and why."""
    from trainyard.doctor import examine

    raise typer.Exit(examine(Session(stack)))


@app.command()
def prepare(
    stack: StackName = "local",
    package: Annotated[bool, typer.Option(help="Also what programs that use the package need.")] = False,
    tests: Annotated[bool, typer.Option(help="Also what only Trainyard's own tests need.")] = False,
) -> None:
    """Install, download or build all that `up` needs, into the cache; start nothing."""
    from trainyard.up import prepare_machine

    prepare_machine(Session(stack), for_package=package, for_tests=tests)


@app.command()
def submit(
    stack: StackName = "local",
    follow: Annotated[bool, typer.Option(help="Stay and show it until it ends.")] = True,
    run: Annotated[str, typer.Option(metavar="RUN", help="Continue this run of the job.")] = "",
    context: Context = "",
) -> None:
    """Submit the stack's training job to its queue, as a run of its own.

    It reaches the cluster by the stack's output `kubeconfig`, or with your rights by a context of your own.

    [dim]trainyard submit -s aws
    trainyard submit -s aws --context research --no-follow[/]
    """
    from trainyard.run import submit_job

    submit_job(Session(stack, context=context), follow=follow, run=run)


@app.command()
def search(
    file: Annotated[Path, typer.Argument(help="The search, a YAML file; see docs/training.md.")],
    stack: StackName = "local",
    context: Context = "",
) -> None:
    """Submit a search for settings: each trial a job in the queue, those that promise less end early."""
    from trainyard.search import submit_search

    submit_search(Session(stack, context=context), file)


@app.command()
def cancel(name: JobName = "", stack: StackName = "local", context: Context = "") -> None:
    """Remove a job and its pods. Its checkpoints stay."""
    from trainyard.run import cancel_job

    cancel_job(Session(stack, context=context), name)


@app.command()
def preempt(
    node: Annotated[str, typer.Argument(help="The node, as `trainyard status` names it.")],
    stack: StackName = "local",
    notice: Annotated[float, typer.Option(min=1, help="Seconds from the notice to the node's end.")] = 30,
    no_notice: Annotated[bool, typer.Option("--no-notice", help="Kill it with no word.")] = False,
    give_back: Annotated[bool, typer.Option("--return", help="Bring a lost node back instead.")] = False,
) -> None:
    """Do to a local node what a cloud does to a spot machine: notice, taint, grace, gone.

    [dim]trainyard preempt spot-0                 30 s of notice
    trainyard preempt spot-0 --no-notice     killed at once
    trainyard preempt spot-0 --return        the cloud has room again[/]
    """
    from trainyard.spot import give_node_back, take_node

    session = Session(stack)
    if give_back:
        give_node_back(session, node)
    else:
        take_node(session, node, None if no_notice else notice)


@app.command()
def env(stack: StackName = "local") -> None:
    """Print the environment in which `pulumi`, `kubectl` and `helm` work on this stack by hand.

    [dim]eval "$(trainyard env)" && pulumi preview -s local[/]
    """
    from trainyard.environment import exports

    sys.stdout.write(exports(Session(stack)))


@app.command(hidden=True)
def credential(
    context: Annotated[str, typer.Argument(help="A context of your own kubeconfig.")] = "",
    stack: StackName = "local",
    member: Annotated[str, typer.Option(help="Of the embedded cluster: a member of this team.")] = "",
) -> None:
    """Print a credential: Kubernetes' clients ask for it where a kubeconfig names this command."""
    from infra.targets.kubeconfig import credential as found
    from trainyard.access_export import member_credential

    made = member_credential(Session(stack), member) if member else found(context)
    sys.stdout.write(json.dumps(made))


access = typer.Typer(no_args_is_help=True, help="How people reach a cluster.")
app.add_typer(access, name="access")


@access.command(name="export")
def export_access(
    team: Annotated[str, typer.Option(help="The team whose members are to reach it.")],
    stack: StackName = "local",
    sign_in: Annotated[
        str, typer.Option(metavar="COMMAND", help="What prints their credentials, if not the stack's own.")
    ] = "",
    to: Annotated[Path | None, typer.Option(help="The file; left out: STACK-TEAM.access.yaml here.")] = None,
) -> None:
    """Write what a member of a team needs to reach the cluster. No secret is in it: send it as you like.

    They take it with `trainyard login FILE`.

    [dim]trainyard access export --team research -s aws
    trainyard access export --team research -s onprem --sign-in 'kubectl oidc-login get-token …'[/]
    """
    from trainyard.access_export import export_access as export

    session = Session(stack)
    session.console.print(export(session, team, sign_in, to), highlight=False)


app.add_typer(member.app)


def main() -> None:
    """Run the command line; every expected failure ends in its text and its exit code."""
    errors = Console(stderr=True)
    try:
        code = app(standalone_mode=False)  # its value is 130 after Ctrl-C, and that of a `typer.Exit`
    except InterruptedByUser as stop:
        errors.print(f"[yellow]Interrupted.[/] {escape(stop.text)}", highlight=False, soft_wrap=True)
        sys.exit(stop.exit_code)
    except TrainyardError as error:
        code = _report(errors, error)
    except typer.TyperException as error:  # a wrong flag or argument
        error.show()  # type: ignore[attr-defined]
        code = ExitCode.WRONG_INPUT
    except OSError as error:
        code = _report(errors, _explained(error))
    except Exception as error:
        code = _report(errors, _refused(error))
    if code == ExitCode.INTERRUPTED:
        errors.print("[yellow]Interrupted.[/] Run the same command again: it goes on from here.")
    sys.exit(code)


def _refused(error: Exception) -> TrainyardError:
    """Say what the cluster's API server refused, or that it is out of reach; raise what is neither.

    The types are known where the command has asked one: the client takes longer to import than most commands.
    """
    http, client = map(sys.modules.get, ("urllib3.exceptions", "kubernetes.client.exceptions"))
    if http is not None and isinstance(error, http.MaxRetryError):
        fix = "of the embedded cluster: run `trainyard up`; else look for the way to the API server"
        return TrainyardError([Problem("the cluster's API", str(error.reason), "an answer", fix)])
    if client is None or not isinstance(error, client.ApiException):
        raise error
    reason = str(error.reason)
    with contextlib.suppress(ValueError, TypeError, KeyError):
        reason = json.loads(error.body)["message"]
    fix = {
        401: "sign in again: the credentials are not known to the cluster, or expired",
        403: "ask for the right, or name a context of yours that has it (`--context NAME`)",
    }.get(error.status, "run the command again; if it stays, look at the cluster with kubectl")
    return TrainyardError([Problem("the cluster's API", f"{error.status}: {reason}", "an answer", fix)])


def _explained(error: OSError) -> TrainyardError:
    """Say what the user can do about it; raise what nobody has foreseen."""
    if error.errno not in REFUSALS:
        raise error
    fix = "put that right, or set TRAINYARD_STATE and TRAINYARD_CACHE to folders of your own"
    return MachineError([Problem(str(error.filename), str(error.strerror), "a file system to write to", fix)])


def _report(errors: Console, error: TrainyardError) -> ExitCode:
    number = len(error.problems)
    errors.print(f"[red bold]{number} problem{'s' if number > 1 else ''}[/]")
    for problem in error.problems:
        errors.print(escape(str(problem)), highlight=False, soft_wrap=True)
    return error.exit_code
