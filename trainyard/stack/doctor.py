"""`trainyard doctor`: prints what this host and the cloud account have and lack for `up`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.markup import escape

from infra.errors import ExitCode, HostError, Problem
from local.toolchain.doctor import Diagnosis, DoctorFinding, DoctorStatus, diagnose, from_problem
from trainyard.forms import Form
from trainyard.stack.change import wanted_artifacts
from trainyard.stack.session import Session


@dataclass(frozen=True)
class Answer:
    """What a cloud account or a cluster has answered."""

    problems: tuple[Problem, ...] = ()
    notes: tuple[str, ...] = ()
    """What was not checked, or is only to be known."""
    checked: str = ""
    """What was checked, where there is no problem."""


def examine(session: Session, form: Form = Form.TEXT) -> int:
    """Print existing and missing dependencies, and the steps of `up`; return the exit code."""
    diagnosis = diagnose(
        session.toolchain,
        wanted_artifacts(session),
        [lambda: _remains(session)],
        _packages(session),
        runs_nodes=session.is_embedded,
    )
    account = Answer() if diagnosis.exit_code else _ask_account(session)  # needs the SDK
    answers = (account, _ask_cluster(session, diagnosis))
    code = diagnosis.exit_code or (ExitCode.HOST if any(each.problems for each in answers) else ExitCode.OK)
    if form is Form.JSON:
        session.console.file.write(json.dumps(_as_data(diagnosis, answers), indent=1) + "\n")
    else:
        diagnosis.render(session.console)
        _show(session.console, answers)
        unable = "`trainyard up` cannot start yet."
        session.console.print(unable if code else "[green]`trainyard up` can start.[/]")
    return code


def _as_data(diagnosis: Diagnosis, answers: Sequence[Answer]) -> dict[str, object]:
    return {
        "findings": [asdict(each) for each in diagnosis.findings],
        "problems": [asdict(problem) for each in answers for problem in each.problems],
        "notes": [note for each in answers for note in each.notes],
    }


def _show(console: Console, answers: Sequence[Answer]) -> None:
    for each in answers:
        for problem in each.problems:
            console.print(f"[red]problem[/]  {escape(str(problem))}", highlight=False)
        for note in each.notes:
            console.print(f"[yellow]note[/]  {escape(note)}", highlight=False, soft_wrap=True)
        if each.checked and not each.problems:
            console.print(f"[green]ok[/]  {each.checked}", highlight=False)


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


def _ask_account(session: Session) -> Answer:
    """Ask the stack's cloud, where there are credentials, whether it has what `up` needs."""
    account = session.target.open_account()
    if account is None:
        return Answer()
    found = account.preflight(session.stack)
    if found.why_unreadable:
        return Answer(notes=(f"not checked: {found.why_unreadable}",))
    return Answer(found.problems, checked=f"{session.target.kind}: {found.checked}")


def _ask_cluster(session: Session, diagnosis: Diagnosis) -> Answer:
    """Ask a cluster that exists whether the stack can come there; names of objects need the charts."""
    if not session.is_of_others:
        return Answer()
    from trainyard.stack.cluster.findings import ask
    from trainyard.stack.preview import announced, prepared

    later = "not checked: names of its objects and pods, for which `trainyard preview` gets the charts first"
    has_charts = all(each.state is DoctorStatus.OK for each in diagnosis.findings)
    if not has_charts and getattr(session.stack.target, "existing_cluster", None):
        return Answer(notes=(later,))  # its address is in the plan
    objects = announced(session, prepared(session)) if has_charts else []
    _, found = ask(session, objects)
    nodes = f"the cluster: Kubernetes {found.seen.version}, {len(found.seen.nodes)} nodes"
    return Answer(found.problems, (*found.notes, *([] if has_charts else [later])), nodes)


def _remains(session: Session) -> Iterable[Problem]:
    """Ask the cluster, if there is one, whether it could be started again."""
    try:
        session.check_host()
        if session.cluster_exists:
            session.cluster.check()
    except HostError as error:
        return error.problems
    return ()
