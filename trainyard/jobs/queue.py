"""`trainyard job queue`: shows queues, free GPUs, pending jobs, what is ahead of them and when they may
start.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from rich.console import Console

from engine.tables import PlainTable
from infra.clients.kubernetes import ApiError, Object
from infra.clients.kubernetes.api import path_of
from infra.common import names
from trainyard.forms import Form
from trainyard.jobs import workloads
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.estimate import Holder, Lengths, PoolCapacity, earliest, latest
from trainyard.jobs.flavors import FlavorLimits, node_labels
from trainyard.jobs.key import LOCAL_QUEUES, WORKLOADS
from trainyard.jobs.listing import JobRow, rows
from trainyard.jobs.pools import Pool, max_accelerators, pools_of, usage
from trainyard.jobs.served import check_served
from trainyard.jobs.state import waiting_message, waiting_reason
from trainyard.jobs.timeline import brief
from trainyard.jobs.workloads import owner
from trainyard.stack.session import Session

_NO_VISIBILITY = frozenset({403, 404, 503})
"""Statuses of an unavailable visibility API: members may not read it, Kueue does not serve it, or its server
is down."""
VISIBILITY = ("visibility.kueue.x-k8s.io", "v1beta2")
"""Kueue's API for the pending workloads of a local queue, with their positions in the whole queue."""
POSITIONS_LIMIT = 1000
"""Maximum number of jobs per local queue whose positions are read, Kueue's own default."""


@dataclass(frozen=True)
class StartEstimate:
    """The range in which a job may start."""

    earliest: datetime | None
    """Earliest start; None: the queue can never admit the job."""
    latest: datetime | None
    """Latest start; None: nothing limits it."""
    basis: str


@dataclass(frozen=True)
class PendingJob:
    """A job that waits in a queue."""

    job: str
    team: str
    accelerators: int
    priority: str
    since: datetime
    reason: str
    message: str
    """What Kueue itself says, of which `reason` is in our words."""
    before: tuple[str, ...]
    """Jobs of the user's teams ahead of this one, in their order."""
    others_before: int | None
    """Number of other teams' jobs ahead of this one; None if the user may not see the order."""
    start: StartEstimate


@dataclass(frozen=True)
class Queue:
    """A queue of the cluster that the user's teams submit to."""

    name: str
    teams: tuple[str, ...]
    pools: tuple[Pool, ...]
    waiting: tuple[PendingJob, ...]
    starting: tuple[JobRow, ...]
    """Admitted jobs whose pods do not run, with the reason."""
    others_waiting: int | None
    """Number of other teams' pending jobs; None if the user may not see the queue."""


def show_queue(session: Session, form: Form, *, verbose: bool = False) -> None:
    """Print every queue of the user's teams, and what waits in it; if `verbose`, what Kueue says of it."""
    cluster = MemberCluster(session)
    found = queues(cluster, rows(cluster), datetime.now(UTC))
    if form is Form.JSON:
        session.console.file.write(
            json.dumps([asdict(each) for each in found], indent=2, default=_iso) + "\n"
        )
        return
    for each in found:
        _print(session.console, each, verbose=verbose)
    if not found:
        check_served(session.api, path_of(LOCAL_QUEUES), needed=True)
        session.console.print("no local queue is in these namespaces")


@dataclass(frozen=True)
class _EstimateInputs:
    """Inputs of an estimate for one queue."""

    rooms: Mapping[str, PoolCapacity]
    """Capacity of each flavor."""
    limits: Mapping[str, FlavorLimits]
    lengths: Lengths
    now: datetime

    def ahead(self, pool: str, before: Sequence[Object]) -> list[int]:
        """Return the accelerators of the jobs before another that can start in a pool first."""
        limits = self.limits[pool]
        return [workloads.accelerators(each) for each in before if not limits.refusal(each)]


def estimate_new_job_start(
    cluster: MemberCluster, name: str, pools: Sequence[str], needed: int, now: datetime
) -> StartEstimate:
    """Return when a job may start that is submitted to a queue now: all jobs that wait there go first.

    Args:
        cluster: cluster as its user sees it.
        name: name of the cluster queue.
        pools: pools that the job may use.
        needed: accelerators of all its nodes.
        now: in UTC.
    """
    _, own = _of_queue(name, _local_queues(cluster), _records(cluster))
    inputs = _estimate_inputs(name, own, cluster.cluster_queues(), cluster.flavors(), now)
    return _estimate_start(needed, pools, [each for each in own if workloads.is_waiting(each)], inputs)


def _local_queues(cluster: MemberCluster) -> dict[tuple[str, str], str]:
    """Namespace and name of each local queue → its cluster queue."""
    return {
        (namespace, each["metadata"]["name"]): str(each["spec"]["clusterQueue"])
        for namespace in cluster.namespaces
        for each in cluster.objects(LOCAL_QUEUES, namespace)
    }


def _of_queue(
    name: str, local_queues: Mapping[tuple[str, str], str], records: Sequence[Object]
) -> tuple[list[tuple[str, str]], list[Object]]:
    """Return the local queues of a cluster queue, and the workloads in them."""
    own_queues = [key for key, queue in local_queues.items() if queue == name]
    return own_queues, [each for each in records if _local_queue(each) in own_queues]


def _records(cluster: MemberCluster) -> list[Object]:
    return [each for namespace in cluster.namespaces for each in cluster.objects(WORKLOADS, namespace)]


def queues(cluster: MemberCluster, jobs: Sequence[JobRow], now: datetime) -> list[Queue]:
    """Read the queues of the user's teams, whose jobs were read just before."""
    local_queues, records = _local_queues(cluster), _records(cluster)
    known, flavors = cluster.cluster_queues(), cluster.flavors()
    admitted = {(row.team, row.name): row for row in jobs if row.flavor and row.reason}
    found = []
    for name in sorted(set(local_queues.values())):
        own_queues, own = _of_queue(name, local_queues, records)
        positions = _positions(cluster, own_queues) if any(map(workloads.is_waiting, own)) else {}
        teams = sorted({names.team_of(namespace) for namespace, _ in own_queues})
        inputs = _estimate_inputs(name, own, known, flavors, now)
        of_queue = {(names.team_of(each["metadata"]["namespace"]), owner(each)[1]) for each in own}
        starting = [row for key, row in admitted.items() if key in of_queue]
        found.append(_queue(name, teams, own, known, positions, starting=starting, inputs=inputs))
    return found


def _queue(
    name: str,
    teams: Sequence[str],
    own: Sequence[Object],
    known: Mapping[str, Object],
    positions: Mapping[str, int],
    *,
    starting: Sequence[JobRow],
    inputs: _EstimateInputs,
) -> Queue:
    pending_jobs = _in_order([each for each in own if workloads.is_waiting(each)])
    pools = pools_of(name, known)
    waiting = tuple(
        _pending_job(each, pending_jobs[:index], positions.get(_name_of(each)), inputs)
        for index, each in enumerate(pending_jobs)
    )
    pending = int(known[name].get("status", {}).get("pendingWorkloads", 0)) if name in known else None
    others = None if pending is None else max(0, pending - len(pending_jobs))
    return Queue(name, tuple(teams), tuple(pools), waiting, tuple(starting), others)


def _estimate_inputs(
    name: str,
    own: Sequence[Object],
    known: Mapping[str, Object],
    flavors: Mapping[str, Object],
    now: datetime,
) -> _EstimateInputs:
    running = [each for each in own if workloads.is_running(each)]
    rooms = {pool.name: _capacity(pool, running, known, now) for pool in pools_of(name, known)}
    keys = frozenset(key for pool in rooms for key in node_labels(flavors.get(pool, {})))
    limits = {
        pool: FlavorLimits(most, flavors.get(pool, {}), keys)
        for pool, most in max_accelerators(name, known).items()
    }
    lengths = Lengths.of([seconds for each in own if (seconds := _run_seconds(each)) is not None])
    return _EstimateInputs(rooms, limits, lengths, now)


def _capacity(
    pool: Pool, running: Sequence[Object], known: Mapping[str, Object], now: datetime
) -> PoolCapacity:
    """Capacity of a pool: free accelerators, running jobs of the user's teams, and accelerators of others."""
    holders = tuple(
        Holder(held, _seconds_held(each, now), workloads.limit_seconds(each) or math.inf)
        for each in running
        if (held := workloads.by_flavor(each).get(pool.name, 0))
    )
    everywhere = sum(usage(queue).get(pool.name, 0) for queue in known.values())
    others = max(0, everywhere - sum(each.accelerators for each in holders))
    return PoolCapacity(pool.free, holders, others)


def _seconds_held(workload: Object, now: datetime) -> float:
    start = workloads.since(workload, "Admitted") or workloads.since(workload, "QuotaReserved")
    return (now - start).total_seconds() if start else 0.0


def _run_seconds(workload: Object) -> float | None:
    """Seconds that an ended job ran since its last admission."""
    start, end = workloads.since(workload, "Admitted"), workloads.since(workload, "Finished")
    return (end - start).total_seconds() if start and end else None


def _in_order(waiting: Sequence[Object]) -> list[Object]:
    """Order workloads as Kueue does: by priority, then by the time of the eviction or of the submission."""

    def sort_key(workload: Object) -> tuple[int, datetime]:
        evicted = workloads.since(workload, "Evicted")
        return -int(workload["spec"].get("priority", 0)), evicted or workloads.created(workload)

    return sorted(waiting, key=sort_key)


def _positions(cluster: MemberCluster, own_queues: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return each waiting job's position in the whole queue, by workload, where the user may read it."""
    found: dict[str, int] = {}
    for namespace, local_queue in own_queues:
        path = path_of((*VISIBILITY, "localqueues"), namespace, f"{local_queue}/pendingworkloads")
        try:
            items = cluster.api.items(path, {"limit": POSITIONS_LIMIT})
        except ApiError as error:
            if error.status not in _NO_VISIBILITY:
                raise
            return {}
        found |= {
            f"{namespace}/{item['metadata']['name']}": int(item["positionInClusterQueue"]) for item in items
        }
    return found


def _pending_job(
    workload: Object, before: Sequence[Object], position: int | None, inputs: _EstimateInputs
) -> PendingJob:
    about = workload["metadata"]
    needed = workloads.accelerators(workload)
    refusals = {pool: limits.refusal(workload) for pool, limits in inputs.limits.items()}
    pools = [pool for pool, reason in refusals.items() if not reason]
    start = _estimate_start(needed, pools, before, inputs)
    if refusals and not pools:
        reasons = "; ".join(f"{pool}: {reason}" for pool, reason in refusals.items())
        start = replace(start, basis=f"no pool of this queue can ever take the job: {reasons}")
    return PendingJob(
        job=owner(workload)[1],
        team=names.team_of(about["namespace"]),
        accelerators=needed,
        priority=workloads.priority(workload),
        since=workloads.since(workload, "Evicted") or workloads.created(workload),
        reason=waiting_reason(message := waiting_message(workload)),
        message=message,
        before=tuple(owner(each)[1] for each in before),
        others_before=None if position is None else max(0, position - len(before)),
        start=start,
    )


def _estimate_start(
    needed: int, pools: Sequence[str], before: Sequence[Object], inputs: _EstimateInputs
) -> StartEstimate:
    """Take the best of the flavors that can take the job, for each end of the range."""
    if not inputs.rooms:
        return StartEstimate(inputs.now, None, "the quota of this queue is not visible to you")
    rooms, lengths = {pool: inputs.rooms[pool] for pool in pools}, inputs.lengths
    first = min((earliest(room, needed, lengths) for room in rooms.values()), default=math.inf)
    last = min(
        (latest(room, needed, inputs.ahead(pool, before), lengths) for pool, room in rooms.items()),
        default=math.inf,
    )
    return StartEstimate(_after(inputs.now, first), _after(inputs.now, last), _basis(rooms, lengths))


def _after(now: datetime, seconds: float) -> datetime | None:
    return None if math.isinf(seconds) else now + timedelta(seconds=seconds)


def _basis(rooms: Mapping[str, PoolCapacity], lengths: Lengths) -> str:
    holders = [holder for room in rooms.values() for holder in room.holders]
    limited = sum(not math.isinf(holder.limit) for holder in holders)
    parts = [f"{len(holders)} running jobs of yours, {limited} with a time limit"]
    if others := sum(room.others for room in rooms.values()):
        parts.append(f"{others} GPUs of other teams, whose end is unknown")
    if math.isinf(lengths.longest):
        parts.append(f"{lengths.number} ended jobs of yours are too few to estimate how long one takes")
    else:
        short, long = (brief(timedelta(seconds=each)) for each in (lengths.shortest, lengths.longest))
        parts.append(f"of {lengths.number} ended jobs of yours 80 % took {short} to {long}")
    return "; ".join(parts)


def _local_queue(workload: Object) -> tuple[str, str]:
    return workload["metadata"]["namespace"], str(workload["spec"].get("queueName", ""))


def _name_of(workload: Object) -> str:
    return f"{workload['metadata']['namespace']}/{workload['metadata']['name']}"


def _iso(value: Any) -> str:  # noqa: ANN401 -- what JSON does not know
    return str(value.isoformat())


def _print(console: Console, queue: Queue, *, verbose: bool) -> None:
    console.print(f"[bold]queue {queue.name}[/] of {', '.join(queue.teams)}", highlight=False)
    if queue.pools:
        table = PlainTable("pool", "quota", "in use", "free")
        for pool in queue.pools:
            table.add_row(pool.name, str(pool.quota), str(pool.used), str(pool.free))
        table.show(console)
    if not queue.waiting:
        console.print("none of your jobs waits")
    else:
        table = PlainTable("waits", "team", "GPUs", "priority", "since", "before it", "may start")
        for each in queue.waiting:
            table.add_row(*_row(each))
        table.show(console)
    for each in queue.waiting:
        said = [f"Kueue: {each.message}"] if verbose and each.message else []
        for text in (each.reason, *said, f"start: {each.start.basis}"):
            console.print(f"{each.job}: {text}", highlight=False, markup=False, soft_wrap=True)
    for row in queue.starting:
        text = f"{row.name}, admitted to {row.flavor}: {row.reason}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    if queue.others_waiting:
        console.print(f"{queue.others_waiting} jobs of other teams wait in this queue", highlight=False)


def _row(each: PendingJob) -> tuple[str, ...]:
    before = [*each.before, *([f"{each.others_before} of other teams"] if each.others_before else [])]
    since = brief(datetime.now(UTC) - each.since)
    when = shown(each.start)
    return each.job, each.team, str(each.accelerators), each.priority, since, ", ".join(before) or "–", when


def shown(start: StartEstimate) -> str:
    """Write a start as a range."""
    first, last = (_clock(moment) for moment in (start.earliest, start.latest))
    return "never" if start.earliest is None else f"{first} to {last or 'unknown'}"


def _clock(moment: datetime | None) -> str:
    """Write a time of this day by its hour, any other with its date; in the time zone of this host."""
    if moment is None:
        return ""
    here = moment.astimezone()
    if (moment - datetime.now(UTC)).total_seconds() < 1:
        return "now"
    return here.strftime("%H:%M" if here.date() == datetime.now().astimezone().date() else "%Y-%m-%d %H:%M")
