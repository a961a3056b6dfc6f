"""Checks of a job against the stack that it is for: team, queue, size, runtime, fabric, grace, data."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from catalog import fabric_lint
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.grace import pool_notice, runtime_grace_seconds, runtime_notices
from infra.stackfile.job import EXIT_TIMEOUT, JobSpec, NeedsSpec, settings_in
from infra.stackfile.limits import limits_of
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.operators import OperatorsSpec
from infra.stackfile.placement import FlavorOffer, offers, place
from infra.stackfile.queue import QueueSpec, TeamSpec, most
from infra.stackfile.source import KeyPath
from infra.stackfile.stack import runtime_names
from infra.stackfile.target import TargetSpec

Datasets = tuple[DatasetSpec, ...]
Pools = tuple[NodePoolSpec, ...]
Queues = tuple[QueueSpec, ...]
Teams = tuple[TeamSpec, ...]


def the_stack_runs_train_jobs(operators: OperatorsSpec) -> Iterator[Finding]:
    """Trainer runs the job, and Kueue admits it."""
    for name, what in (("trainer", "the job is a TrainJob"), ("kueue", "the job is queued")):
        if getattr(operators, name) == "off":
            allowed = f"a stack with operators.{name}: install or existing; {what}"
            yield (), f"a stack with operators.{name}: off", allowed, "install it, or name another stack"


def its_names_are_of_the_stack(
    job: JobSpec, teams: Teams, priorities: Mapping[str, int], pools: Pools, operators: OperatorsSpec
) -> Iterator[Finding]:
    """The job's team, priority and runtime must exist."""
    known = [team.name for team in teams]
    if job.team not in known:
        yield unknown(("team",), job.team, known, "a team of this stack")
    if job.priority not in priorities:
        yield unknown(("priority",), job.priority, priorities, "a priority of this stack")
    runtimes = runtime_names(pools, operators)
    if _needs(job) is None and job.runtime not in runtimes:
        yield unknown(("runtime",), job.runtime, runtimes, "a runtime of this stack")


def its_queue_is_its_teams(job: JobSpec, teams: Teams) -> Iterator[Finding]:
    """Others' queues have no local queue in the team's namespace."""
    team = _team(job, teams)
    if team is not None and job.queue and job.queue not in team.queues:
        yield unknown(("queue",), job.queue, team.queues, f"a queue of team {team.name}")


def it_keeps_to_its_teams_limits(
    job: JobSpec, teams: Teams, queues: Queues, pools: Pools, priorities: Mapping[str, int]
) -> Iterator[Finding]:
    """The API server would refuse the job when it is submitted."""
    team = _team(job, teams)
    if team is None:
        return
    if team.priorities and job.priority in priorities and job.priority not in team.priorities:
        yield unknown(("priority",), job.priority, team.priorities, f"a priority of team {team.name}")
    pods = limits_of(team, queues, pools).job_pods
    if job.num_nodes > pods:
        allowed = f"{pods} at most: the pods that a job of team {team.name} may have"
        yield ("nodes",), str(job.num_nodes), allowed, "lower it, or raise the team's limits.job_pods"


def its_needs_fit_a_flavor(job: JobSpec, teams: Teams, queues: Queues, pools: Pools) -> Iterator[Finding]:
    """One flavor must hold the whole job: it has the requirements, and is not spot."""
    team, needs = _team(job, teams), _needs(job)
    if needs is None or team is None:
        return
    found = list(offers(team, queues, pools, job.queue or ""))
    placed = place(job, needs, found)
    if placed is not None and job.runtime not in {"", placed.runtime}:
        fix = "remove `runtime`: `needs` determines it"
        yield ("runtime",), repr(job.runtime), f"{placed.runtime}: the one that `needs` selects", fix
    if found and placed is None:
        asked = "".join(f", {key}: {value}" for key, value in needs.model_dump(exclude_none=True).items())
        got = f"{job.num_nodes} nodes with {job.accelerators_per_node} accelerators each{asked}"
        fix = "request less, give the team another queue (more_queues), or add a pool that is not spot"
        allowed = f"what the queues of team {team.name} have: {_described(found)}"
        yield ("needs",) if job.needs else ("nodes",), got, allowed, fix


def _described(found: Sequence[FlavorOffer]) -> str:
    by_queue: dict[str, list[str]] = {}
    for offer in found:
        by_queue.setdefault(offer.queue, []).append(str(offer))
    return "; ".join(f"{queue}: {', '.join(each)}" for queue, each in by_queue.items())


def its_nodes_fit_a_flavor(job: JobSpec, teams: Teams, queues: Queues, pools: Pools) -> Iterator[Finding]:
    """All nodes of a job get one flavor, so one flavor that is not spot must hold them all."""
    queue = _queue(job, teams, queues)
    if _needs(job) is not None or queue is None:
        return
    known = {pool.name: pool for pool in pools}
    slots = {
        flavor.pool: min(
            known[flavor.pool].num_slots(job.accelerators_per_node),
            most(queue, flavor, queues) // job.accelerators_per_node,
        )
        for flavor in queue.flavors
    }
    lasting = [number for pool, number in slots.items() if not known[pool].is_spot]
    if max(lasting, default=0) < job.num_nodes:
        room = ", ".join(f"{pool}: {number}" for pool, number in slots.items())
        got = (
            f"{job.num_nodes} nodes (accelerators each: {job.accelerators_per_node}); room by flavor: {room}"
        )
        allowed = "a job that fits into one flavor that is not spot (a job never spans two)"
        yield ("nodes",), got, allowed, "lower `nodes`, or give one such pool more nodes and quota"


def it_uses_the_fabric(
    job: JobSpec, pools: Pools, queues: Queues, teams: Teams, operators: OperatorsSpec
) -> Iterator[Finding]:
    """The fabric lint: a job uses all of its pools' fabric, or none of it."""
    placed = _placed(job, teams, queues, pools)
    if placed is None or placed.runtime not in runtime_names(pools, operators):
        return
    sections: dict[str, Any] = {
        name: [entry.model_dump(mode="json") for entry in section]
        for name, section in (("pools", pools), ("queues", queues), ("teams", teams))
    }
    for fault in fabric_lint.job_on_stack(placed.model_dump(mode="json"), sections):
        yield fault.path, fault.got, fault.allowed, fault.fix


def its_launcher_is_not_on_spot(
    job: JobSpec, pools: Pools, queues: Queues, teams: Teams, operators: OperatorsSpec
) -> Iterator[Finding]:
    """The launcher of an MPI job is one of its pods, and the whole job fails with its node."""
    placed = _placed(job, teams, queues, pools)
    queue = _queue(placed, teams, queues) if placed else None
    is_mpi = placed is not None and placed.runtime.startswith("mpi-")
    if placed is None or queue is None or not is_mpi or placed.runtime not in runtime_names(pools, operators):
        return
    flavors = [flavor.pool for flavor in queue.flavors]
    if any(pool.is_spot and _is_real(pool) for pool in pools if pool.name in flavors):
        got = f"{placed.runtime} in queue {queue.name}, whose flavors are {', '.join(flavors)}"
        fix = "name another queue, or use torch: a worker's failure costs the steps since the checkpoint"
        yield ("runtime",), got, "a queue of on-demand and reserved pools", fix


def its_grace_fits_its_pools(
    *,
    target: TargetSpec,
    pools: Pools,
    queues: Queues,
    teams: Teams,
    operators: OperatorsSpec,
    grace_seconds: Mapping[str, int],
    job: JobSpec,
) -> Iterator[Finding]:
    """A save that takes longer than the pods' grace, or a spot node's preemption notice, would be cut off."""
    placed = _placed(job, teams, queues, pools)
    if placed is None or placed.runtime not in runtime_names(pools, operators):
        return
    notices = runtime_notices(target.kind, pools, placed.runtime)
    grace = runtime_grace_seconds(placed.runtime, notices, grace_seconds)
    fix = f"lower it, or raise grace.{placed.runtime} of the stack"
    for index, timeout in _exit_timeouts(job):
        if timeout >= grace:
            allowed = f"less than {grace}: the grace period of {placed.runtime}'s pods"
            yield ("args", index), f"{EXIT_TIMEOUT}={timeout:g}", allowed, fix
    if job.grace_seconds is None:
        return
    got = f"{job.grace_seconds}s"
    if job.grace_seconds > grace:
        yield ("grace",), got, f"{grace}s at most: the grace period of {placed.runtime}'s pods", fix
    for pool in _pools_of(placed, teams, queues, pools):
        notice = pool_notice(target.kind, pool)
        if notice is not None and job.grace_seconds > notice:
            allowed = f"{notice}s at most: the notice of spot pool {pool.name!r}, where it may run"
            yield ("grace",), got, allowed, "lower it, or submit to a queue without spot pools (`queue`)"


def _exit_timeouts(job: JobSpec) -> Iterator[tuple[int, float]]:
    for index, key, value in settings_in(job.args or ()):
        if key == EXIT_TIMEOUT and not job.grace_seconds:
            try:
                yield index, float(value)
            except ValueError:  # the program refuses it, with its reason
                continue


def its_team_may_read_its_datasets(job: JobSpec, datasets: Datasets) -> Iterator[Finding]:
    """Otherwise the job's pods would find nothing at the dataset's path."""
    known = {dataset.name: dataset for dataset in datasets}
    for index, name in enumerate(job.datasets):
        path: KeyPath = ("datasets", index)
        if name not in known:
            yield unknown(path, name, known, "a dataset of this stack")
        elif not known[name].is_read_by(job.team):
            got = f"{name!r}, for {', '.join(known[name].teams or ())}"
            fix = f"add {job.team} to the dataset's `teams`, or submit as another team"
            yield path, got, f"a dataset that {job.team} may read", fix


CHECKS = Checks(__name__)


def _team(job: JobSpec, teams: Teams) -> TeamSpec | None:
    return next((team for team in teams if team.name == job.team), None)


def _queue(job: JobSpec, teams: Teams, queues: Queues) -> QueueSpec | None:
    team = _team(job, teams)
    return next((each for each in queues if team and each.name == (job.queue or team.queue)), None)


def _needs(job: JobSpec) -> NeedsSpec | None:
    """Return what the job's place is selected by; None for a job that names its runtime alone."""
    return job.needs or (None if job.runtime else NeedsSpec())


def _placed(job: JobSpec, teams: Teams, queues: Queues, pools: Pools) -> JobSpec | None:
    """Return the job with runtime and queue; None where nothing fits."""
    team, needs = _team(job, teams), _needs(job)
    if needs is None or team is None:
        return job
    placed = place(job, needs, list(offers(team, queues, pools, job.queue or "")))
    if placed is None:
        return None
    return job.model_copy(update={"runtime": placed.runtime, "queue": placed.queue})


def _is_real(pool: NodePoolSpec) -> bool:
    return pool.accelerator is not None and pool.accelerator.model != "simulated"


def _pools_of(job: JobSpec, teams: Teams, queues: Queues, pools: Pools) -> list[NodePoolSpec]:
    """The pools that a placed job may be admitted to."""
    team = _team(job, teams)
    if team is None:
        return []
    found = list(offers(team, queues, pools, job.queue or team.queue))
    placed = place(job, job.needs, found) if job.needs else None
    return [offer.pool for offer in found if placed is None or offer.pool.name in placed.pools]
