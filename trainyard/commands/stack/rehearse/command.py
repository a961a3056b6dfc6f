"""`trainyard stack rehearse`: sets up a rehearsal (faults, refusals), runs it on the real engine
with fake providers, and prints its report.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime

from engine.engine import Engine
from infra.errors import InputError, Problem, TrainyardError
from rehearsal.fake import FAKES, Fake, fake_of, refusals_of
from rehearsal.faults import Faults, parse_fail
from rehearsal.leaks import CREDENTIALS
from rehearsal.reach import Reach, origin_of, reached
from rehearsal.rehearse import FakeProviders, Phase, Rehearsal, rehearse, with_common
from trainyard.commands.stack.rehearse.operations import EngineOperations
from trainyard.commands.stack.rehearse.project import MADE, open_project
from trainyard.commands.stack.rehearse.report import RehearsalReport, changes, failure
from trainyard.cost.price import price_report, show_price
from trainyard.forms import ReportForm
from trainyard.stack.find import finder
from trainyard.stack.parts import ENGINE_PARTS
from trainyard.stack.session import Session
from trainyard.stack.team_files import needed_approvals

ALL = "all"
"""Value of the option that stands for every refusal of the target."""


def faults_of(*, fail: str, no_capacity: str, crash_after: int) -> Faults:
    """Return the faults that the command's options name. Raises InputError."""
    kind, nth = parse_fail(fail) if fail else ("", 1)
    return Faults(kind, nth, no_capacity, crash_after)


def refusing(session: Session, faults: Faults, names: Sequence[str]) -> Faults:
    """Add the refusals of the stack's target that are named, or all of them. Raises InputError."""
    if not names:
        return faults
    session.packages.ensure(session.progress)  # the fake may need the target's SDK
    _fake(session)
    known = refusals_of(session.stack.target.kind)
    chosen = list(known) if ALL in names else names
    if unknown := [name for name in chosen if name not in known]:
        listed = "; ".join(f"{name}: {each.what}" for name, each in known.items())
        raise InputError([Problem("--refuse", ", ".join(unknown), f"{ALL}; {listed}", "name one of these")])
    return replace(faults, refusals=tuple(known[name] for name in chosen))


def rehearse_isolated(
    session: Session, faults: Faults, *, adopts: bool = False, origin: str = ""
) -> Rehearsal:
    """Rehearse the stack in separate folders. Raises TrainyardError.

    `origin` is where the engine runs: an address or `inside`; empty: a network that the stack names.
    """
    session.packages.ensure(session.progress)
    fake = _fake(session)
    _check_pool(session, faults, fake)
    session.toolchain.ensure(*ENGINE_PARTS, *session.target.artifacts)
    stack = session.stack.model_dump(mode="json", by_alias=True)
    reach = Reach(fake.control_plane, origin_of(origin, stack)) if fake.control_plane else None
    with open_project(session) as project:
        own = project.session
        made = own.paths.state / MADE
        with fake.start(stack, made) as started:

            def open_engine(attached: Mapping[str, str]) -> EngineOperations:
                settings = {
                    "TRAINYARD_STACKS": str(own.paths.stacks),
                    "SECRETS_PROVIDER": "",
                    **CREDENTIALS,
                    **started.variables,
                    **attached,
                }
                tools = Session(own.stack_name, replace(session.paths, state=own.paths.state))
                variables = {**tools.toolchain.environment(), **settings}
                look = finder(session.stack, started.ask)
                engine = Engine(own.paths, variables, look, session.target.advise)
                to_be_killed = bool(faults.crash_after)
                return EngineOperations(engine, project, fake, session.progress, to_be_killed=to_be_killed)

            clouds = with_common(started.clouds)
            stage = FakeProviders(reached(clouds, reach) if reach else clouds, made, faults, adopts)
            with reach.explained() if reach else nullcontext():
                return rehearse(open_engine, stage, lambda phase: session.progress.log(_done(phase)))


def _fake(session: Session) -> Fake:
    """Return the fake of the stack's target. Raises InputError where there is none."""
    kind = session.stack.target.kind
    if kind not in FAKES:
        fix = "write one (docs/dev/adding-a-target.md), or rehearse another stack"
        raise InputError([Problem(f"stack {session.stack_name}", f"kind: {kind}", ", ".join(FAKES), fix)])
    return fake_of(kind)


def _done(phase: Phase) -> str:
    notes = "".join(f"\n  {note}" for note in phase.notes)
    return f"✓ {phase.name}: {changes(phase)} ({phase.seconds:.1f} s){notes}"


def _check_pool(session: Session, faults: Faults, fake: Fake) -> None:
    """Raise InputError where the pool of a fault is none of the stack, or is bought nowhere."""
    pools = [pool.name for pool in session.stack.pools]
    if not faults.no_capacity:
        return
    if not fake.sells_machines:
        got, allowed = f"a stack of kind {session.stack.target.kind}", "a stack on a cloud"
        raise InputError([Problem("--insufficient-capacity", got, allowed, "choose a stack of a cloud")])
    if faults.no_capacity not in pools:
        fix = "write the name of one of these"
        problem = Problem("--insufficient-capacity", repr(faults.no_capacity), ", ".join(pools), fix)
        raise InputError([problem])


def run_rehearsal(
    session: Session,
    faults: Faults,
    form: ReportForm,
    *,
    adopts: bool = False,
    origin: str = "",
    since: str = "",
) -> None:
    """Rehearse the stack, and print the outcome; wrong input ends here."""
    needed = "".join(f"- {each}\n" for each in needed_approvals(session, since))
    price = price_report(session.stack, datetime.now(UTC).date())
    try:
        rehearsal = rehearse_isolated(session, faults, adopts=adopts, origin=origin)
        report = RehearsalReport(session.stack_name, rehearsal)
    except TrainyardError as error:
        if form == "markdown":  # for readers of the pull request; the command still fails
            sys.stdout.write(failure(session.stack_name, error) + price.markdown())
        raise
    if form == "json":
        sys.stdout.write(json.dumps({**report.data(), "price": price.data()}, indent=1) + "\n")
    elif form == "markdown":
        sys.stdout.write(report.markdown() + "\n" + price.markdown() + needed)
    else:
        report.show(session.console)
        show_price(session.stack, form, session.console)
