"""`trainyard doctor`: the machine, seen before anything is done to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.markup import escape

from infra.errors import ExitCode, MachineError, Problem
from infra.targets.aws.account.preflight import problems, unasked
from infra.targets.aws.spec.provider import AwsSpec
from infra.targets.azure.spec.provider import AzureSpec
from infra.targets.gcp.spec.provider import GcpSpec
from local.toolchain.doctor import diagnose
from trainyard.session import Session
from trainyard.up import wanted_artifacts


def examine(session: Session) -> int:
    """Print what there is, what is missing and what `up` would do; return the exit code."""
    diagnosis = diagnose(session.toolchain, wanted_artifacts(session), [lambda: _remains(session)])
    diagnosis.render(session.console)
    session.console.print(
        "[green]`make up` can start.[/]" if not diagnosis.exit_code else "`make up` cannot start yet."
    )
    return diagnosis.exit_code or _examine_account(session)


def _examine_account(session: Session) -> int:
    """Ask the stack's cloud, where there are credentials, whether it has what `up` needs."""
    spec = session.stack.provider
    if isinstance(spec, AwsSpec):
        found = _ask_aws(session, spec)
    elif isinstance(spec, GcpSpec):
        found = _ask_google(session, spec)
    elif isinstance(spec, AzureSpec):
        found = _ask_azure(session, spec)
    else:
        return ExitCode.OK
    if found is None:
        return ExitCode.OK
    for problem in found:
        session.console.print(f"[red]problem[/]  {escape(str(problem))}", highlight=False)
    if not found:
        told = _ASKED.get(spec.kind, "account, rights, zones, quotas, reservations and bucket")
        session.console.print(f"[green]ok[/]  {spec.kind}: {told}", highlight=False)
    return ExitCode.MACHINE if found else ExitCode.OK


_ASKED = {"azure": "subscription, features, machines by zone and quotas; nobody asked for rights"}


def _ask_azure(session: Session, spec: AzureSpec) -> list[Problem] | None:
    """Return what the subscription lacks; None where nobody is signed in to ask."""
    from infra.targets.azure.account import preflight as azure_preflight

    try:
        return list(azure_preflight.problems(session.stack, spec, azure_preflight.by_command_line))
    except azure_preflight.NotAskedError as error:
        session.console.print(f"[yellow]not asked[/]  Azure: {escape(str(error))}", highlight=False)
        return None


def _ask_aws(session: Session, spec: AwsSpec) -> list[Problem] | None:
    """Return what the account lacks; None where there are no credentials to ask with."""
    import boto3  # takes its time, and only this target needs it
    from botocore.exceptions import BotoCoreError, ClientError

    if boto3.Session().get_credentials() is None:
        session.console.print("[yellow]not asked[/]  AWS: no credentials (`aws sso login`)", highlight=False)
        return None
    make: Any = boto3.client
    try:
        return list(problems(session.stack, spec, lambda service: make(service, region_name=spec.region)))
    except (ClientError, BotoCoreError) as error:
        return [unasked(error)]


def _ask_google(session: Session, spec: GcpSpec) -> list[Problem] | None:
    """Return what the project lacks; None where there are no credentials to ask with."""
    from infra.targets.gcp.account import preflight as gcp_preflight
    from infra.targets.gcp.account.api import Google, RefusedError

    try:
        google = Google.of_user()
    except MachineError:
        login = "gcloud auth application-default login"
        session.console.print(
            f"[yellow]not asked[/]  Google Cloud: no credentials (`{login}`)", highlight=False
        )
        return None
    try:
        return list(gcp_preflight.problems(session.stack, spec, google))
    except RefusedError as error:
        return list(error.problems)


def _remains(session: Session) -> Iterable[Problem]:
    """Ask the cluster, if there is one, whether it could be brought up again."""
    try:
        session.check_machine()
        if session.cluster_exists:
            session.cluster.check()
    except MachineError as error:
        return error.problems
    return ()
