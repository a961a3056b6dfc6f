"""`trainyard stack rehearse`: runs a stack's lifecycle with fake providers; the only command that imports the
fakes.
"""

from typing import Annotated

import typer

from trainyard.commands.options import ReportOutput, Since, StackName
from trainyard.forms import ReportForm
from trainyard.stack.session import Session

FailedType = Annotated[str, typer.Option(metavar="TYPE[:NTH]", help="Fail the NTH creation of this type.")]
PoolWithoutCapacity = Annotated[
    str, typer.Option(metavar="POOL", help="The cloud has no capacity for this pool.")
]
CrashAfter = Annotated[
    int, typer.Option(metavar="N", min=0, help="Kill the engine (-9) after N resources are created.")
]
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
    typer.Option(
        "--adopt", help="Delete the state after `up`; run `up` again after `destroy`; see `import`."
    ),
]


def rehearse(
    stack: StackName = "",
    output: ReportOutput = ReportForm.TEXT,
    fail: FailedType = "",
    insufficient_capacity: PoolWithoutCapacity = "",
    crash_after: CrashAfter = 0,
    origin: Origin = "",
    refuse: Refusals = None,
    adopt: Adopt = False,
    since: Since = "",
) -> None:
    """Run the stack's lifecycle on the real engine with fake providers: no credentials, no network.

    Preview, up, up again, refresh, update, destroy, under all policies. Every input is checked against the
    SDK's types; on AWS moto answers the requests, which are checked against botocore's models. A private API
    server answers only `--from inside`. It needs no secrets, so it is safe as a check of pull requests.

    [dim]trainyard stack rehearse -s aws-dev
    trainyard stack rehearse -s aws --fail NodeGroup:2           does the next `up` repair it?
    trainyard stack rehearse -s aws --insufficient-capacity spot
    trainyard stack rehearse -s aws --from 198.51.100.4          would `up` reach the API server from there?
    trainyard stack rehearse -s aws --refuse spot-empty          what would a user see?
    trainyard stack rehearse -s aws --crash-after 40[/]
    """
    from trainyard.commands.stack.rehearse.command import faults_of, refusing, run_rehearsal

    faults = faults_of(fail=fail, no_capacity=insufficient_capacity, crash_after=crash_after)
    session = Session(stack)
    faults = refusing(session, faults, refuse or ())
    run_rehearsal(session, faults, output, adopts=adopt, origin=origin, since=since)
