"""`trainyard up`, `preview` and `stack import`: prepare the host, and create, preview or import the stack's
resources.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.events import OperationResult, label
from infra.errors import InputError, Problem, TrainyardError
from infra.stackfile.source import read_config
from trainyard.stack.backup import warn_of_host
from trainyard.stack.capacity import report_missing_capacity
from trainyard.stack.data import check_data, check_teams, explained
from trainyard.stack.parts import CLUSTER_PARTS, ENGINE_PARTS, PACKAGE_PARTS, host_parts
from trainyard.stack.plan import Operation, check_approved, operations, read_plan, write_plan
from trainyard.stack.pool_changes import pool_changes
from trainyard.stack.session import Session, one_at_a_time, planned_by_one


def bring_up(
    session: Session,
    run_job: Callable[[Session, float], None] | None,
    *,
    refresh: bool = False,
    plan: Path | None = None,
) -> None:
    """Create the stack's resources, then run a job, if one is given, with the time of the start.

    With a plan, operations that it does not have are refused before anything is changed.
    """
    started = time.time()
    approved = read_plan(plan) if plan else None
    if plan and refresh:
        got, fix = "--refresh too", "make the plan after a change by hand is in the state: pulumi refresh"
        raise InputError([Problem("--plan", got, "one of --plan and --refresh, which may find more", fix)])
    stack = session.stack  # wrong input ends here, before anything is started
    session.check_host()  # so does a host that lacks what Trainyard cannot install
    with one_at_a_time(session.paths, stack.name):
        with planned_by_one(session.paths, stack.name):
            _change(session, refresh=refresh, approved=approved)
        if run_job is not None:
            run_job(session, started)
    program = f"trainyard run -s {stack.name} --team {stack.teams[0].name} --gpus 2 -- python train.py"
    session.console.print(f"your own code, from its folder: {program}", highlight=False, soft_wrap=True)


def _change(session: Session, *, refresh: bool, approved: Sequence[Operation] | None) -> None:
    """Create, change and delete resources until the stack is as declared."""
    prepare_host(session)
    session.engine.recover(session.stack_name)  # a killed engine may still be creating the cluster
    is_first = session.engine.is_empty(session.stack_name)
    if is_first:
        warn_of_host(session)
    is_incomplete = _settle(session, is_first=is_first)
    if session.is_of_others:
        _hand_over(session)
    if approved is not None or not session.is_embedded:  # policies evaluate each object before its creation
        planned = operations(_preview(session, continues=True, refresh=refresh).steps)
        if approved is not None:
            check_approved(approved, planned)
    elif not is_first:
        check_teams(session)
    try:
        result = session.engine.up(
            session.stack_name,
            session.progress,
            policy_packs=[session.paths.policies],
            writes_state_once=is_first and session.is_embedded,
            refresh=refresh or is_incomplete,
        )
    except TrainyardError as error:
        if session.is_embedded:
            raise
        raise TrainyardError([*error.problems, *_bare(session)], error.exit_code) from error
    _report(session, result)
    if not session.is_embedded:  # an embedded `up` waits for its nodes
        report_missing_capacity(session)


def _bare(session: Session) -> list[Problem]:
    """Judge what a failed update has created: the engine evaluates companions only after a success."""
    from policies.standing import bare  # imports all policies

    found = bare(session.engine.resources(session.stack_name), read_config(session.stack_file))
    return [
        Problem(label(each.resource.urn), f"{each.violation.got}", each.violation.allowed, each.policy.remedy)
        for each in found
    ]


def _settle(session: Session, *, is_first: bool) -> bool:
    """Reconcile the state with what an interrupted `up` left: adopt it, delete it or restart it.

    Returns whether the state has objects that are gone.
    """
    if session.is_searchable and is_first:
        _adopt(session)
    elif session.cluster_exists and is_first:
        session.cluster.down()  # a first `up` was killed: no state has its objects
    elif session.cluster_exists:
        session.cluster.up()  # restarts processes that died (a reboot, a kill)
        from trainyard.stack.environments import remove_unused  # imports the client of Kubernetes

        return remove_unused(session.api)
    return False


def adopt_what_exists(session: Session) -> None:
    """Import the stack's existing cloud resources into the state. Raises InputError for other targets."""
    if not session.is_searchable:
        got, fix = (
            f"kind: {session.stack.target.kind}",
            "run `trainyard up`: it continues with what has its mark",
        )
        raise InputError([Problem(f"stack {session.stack_name}", got, "a stack of aws, azure or gcp", fix)])
    prepare_engine(session)
    name = session.stack.name
    with one_at_a_time(session.paths, name), planned_by_one(session.paths, name):
        _adopt(session)


def _adopt(session: Session) -> None:
    result = session.engine.adopt(session.stack_name, session.progress)
    session.console.print(result.summary())


def prepare_engine(session: Session) -> None:
    """Install and build the dependencies of a preview: the target's SDK, the engine and the charts."""
    session.packages.ensure(session.progress)
    session.toolchain.ensure(*engine_parts(session))


def prepare_host(session: Session, *, for_package: bool = False, for_tests: bool = False) -> None:
    """Fetch or build all artifacts of the stack into the cache; a filled cache costs well under a second."""
    session.packages.ensure(session.progress)
    tests = [name for name in session.toolchain.names() if name.startswith("test-package/")]
    parts = PACKAGE_PARTS if for_package else ()
    session.toolchain.ensure(*wanted_artifacts(session), *parts, *(tests if for_tests else ()))


def show_preview(session: Session, plan: Path | None = None) -> None:
    """Preview the changes, evaluated by the policy pack; write them to a plan's file, if one is given."""
    stack = session.stack  # wrong input ends here
    prepare_engine(session)
    with planned_by_one(session.paths, stack.name):
        result = _preview(session)
        if session.is_of_others:
            _hand_over(session, now=False)
    if plan:
        write_plan(plan, operations(result.steps))


def _preview(session: Session, *, continues: bool = False, refresh: bool = False) -> OperationResult:
    """Preview; `continues`: an `up` follows, for which what a killed one has begun is made ready."""
    if session.is_of_others:  # first: a preview would stop at the first object that others have
        from trainyard.stack.cluster.findings import check_cluster, mark_of
        from trainyard.stack.cluster.names_taken import forget_begun, planned
        from trainyard.stack.preview import announced, prepared

        states = announced(session, prepared(session))
        api = check_cluster(session, states)
        if continues:
            forget_begun(api, planned(states), mark_of(session))
    try:
        result = session.engine.preview(
            session.stack_name, session.progress, policy_packs=[session.paths.policies], refresh=refresh
        )
    except TrainyardError as error:
        raise explained(session, error) from error
    _report(session, result)
    if not session.is_embedded:  # whose data is in folders of this host, which no engine deletes
        check_data(session, result.steps)
    elif not session.engine.is_empty(session.stack_name) and session.cluster_exists:
        check_teams(session)
    return result


def _hand_over(session: Session, *, now: bool = True) -> None:
    """Leave operators that are `existing` from now on where they are: the program no longer has them."""
    from trainyard.stack.cluster.hand_over import handed_over  # imports the platform

    if session.engine.is_empty(session.stack_name):
        return
    for key, urns in handed_over(session.stack, session.engine.resources(session.stack_name)):
        objects = f"{key}: existing: {len(urns)} objects of it"
        if now:
            session.engine.disown(session.stack_name, urns)
            text = f"{objects} stay in the cluster, and are its owner's from now on"
        else:
            text = f"{objects} are not deleted as the plan says: `up` leaves them to their owner"
        session.console.print(text, highlight=False, soft_wrap=True)


def _report(session: Session, result: OperationResult) -> None:
    """Print the changes, done or planned, and how they affect pools."""
    session.console.print(result.summary())
    for line in pool_changes(result, session.target.pool_types):
        session.console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)


def engine_parts(session: Session) -> list[str]:
    """Return the engine's artifacts for this stack, including its target's providers."""
    if session.is_fleet:
        return [*ENGINE_PARTS]
    plugins = (f"binary/pulumi-resource-{name}" for name in session.target.plugins)
    return [*ENGINE_PARTS, *session.target.artifacts, *plugins]


def wanted_artifacts(session: Session) -> list[str]:
    """Name what `up` of this stack needs, in the toolchain's words."""
    if not session.is_embedded:
        programs = () if session.is_fleet else session.target.programs
        return [*engine_parts(session), *(f"binary/{name}" for name in programs)]
    return [*engine_parts(session), *CLUSTER_PARTS, *host_parts(session.stack, session.toolchain.names())]
