"""`trainyard doctor`: prints what this host and the cloud account have and lack for `up`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.markup import escape

from infra.errors import ExitCode, HostError, Problem
from local.toolchain.doctor import Diagnosis, DoctorFinding, DoctorStatus, diagnose, from_problem
from trainyard.stack.change import wanted_artifacts
from trainyard.stack.session import Session


def examine(session: Session) -> int:
    """Print existing and missing dependencies, and the steps of `up`; return the exit code."""
    diagnosis = diagnose(
        session.toolchain,
        wanted_artifacts(session),
        [lambda: _remains(session)],
        _packages(session),
        runs_nodes=session.is_embedded,
    )
    diagnosis.render(session.console)
    code = diagnosis.exit_code or _examine_account(session) or _examine_cluster(session, diagnosis)
    unable = "`trainyard up` cannot start yet."
    session.console.print(unable if code else "[green]`trainyard up` can start.[/]")
    return code


def _packages(session: Session) -> Iterator[DoctorFinding]:
    """Report which packages of the target's SDK are missing, and who installs them."""
    packages = session.packages
    missing = ", ".join(each.name for each in packages.missing())
    if not missing:
        yield DoctorFinding("packages", packages.extra, DoctorStatus.OK, "installed")
    elif packages.is_installable:
        what = f"install {missing} from requirements/{packages.lock.name}"
        yield DoctorFinding("packages", packages.extra, DoctorStatus.TODO, what)
    else:
        yield from_problem("packages", packages.problem("not installed"))


def _examine_account(session: Session) -> int:
    """Ask the stack's cloud, where there are credentials, whether it has what `up` needs."""
    account = session.target.open_account()
    if account is None:
        return ExitCode.OK
    found = account.preflight(session.stack)
    if found.why_unreadable:
        session.console.print(f"[yellow]not checked[/]  {escape(found.why_unreadable)}", highlight=False)
        return ExitCode.OK
    for problem in found.problems:
        session.console.print(f"[red]problem[/]  {escape(str(problem))}", highlight=False)
    if not found.problems:
        session.console.print(f"[green]ok[/]  {session.target.kind}: {found.checked}", highlight=False)
    return ExitCode.HOST if found.problems else ExitCode.OK


def _examine_cluster(session: Session, diagnosis: Diagnosis) -> int:
    """Ask a cluster that exists whether the stack can come there; names of objects need the charts."""
    if not session.is_of_others:
        return ExitCode.OK
    from trainyard.stack.cluster.findings import examine, mark_of
    from trainyard.stack.preview import announced, prepared

    has_charts = all(each.state is DoctorStatus.OK for each in diagnosis.findings)
    objects = announced(session, prepared(session)) if has_charts else []
    found = examine(session.api, session.stack, mark_of(session), objects)
    for problem in found.problems:
        session.console.print(f"[red]problem[/]  {escape(str(problem))}", highlight=False)
    if found.note:
        session.console.print(f"[yellow]note[/]  {escape(found.note)}", highlight=False)
    if not has_charts:
        later = "names of its objects: asked by `trainyard preview`, which gets the charts first"
        session.console.print(f"[yellow]not checked[/]  {later}", highlight=False)
    if not found.problems:
        nodes = f"Kubernetes {found.seen.version}, {len(found.seen.nodes)} nodes"
        session.console.print(f"[green]ok[/]  the cluster: {nodes}", highlight=False)
    return ExitCode.HOST if found.problems else ExitCode.OK


def _remains(session: Session) -> Iterable[Problem]:
    """Ask the cluster, if there is one, whether it could be started again."""
    try:
        session.check_host()
        if session.cluster_exists:
            session.cluster.check()
    except HostError as error:
        return error.problems
    return ()
