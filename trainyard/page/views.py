"""Reads what the page shows, with the user's rights: the same functions as the commands."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.clients.kubernetes import ApiError, Object
from infra.common import names
from infra.errors import TrainyardError
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.key import RUN, TRAIN_JOBS, JobKey
from trainyard.jobs.listing import JobRow, rows
from trainyard.jobs.logs import Selection, StoredLogs
from trainyard.jobs.node_pods import NodePod, pods_of
from trainyard.jobs.pools import Pool
from trainyard.jobs.queue import PendingJob, queues, shown
from trainyard.jobs.status import nodes_of
from trainyard.jobs.timeline import brief
from trainyard.page.charts import Curve, curve_of
from trainyard.page.metrics import Progress, events_of, figures_of, on_host, progress_of, read_metrics
from trainyard.stack.session import Session

LAST_LINES = 50
"""Lines of the log on a job's page."""
DAY = timedelta(days=1)
_ORDER = {"running": 0, "admitted": 0, "held": 0, "complete": 2, "failed": 2}
"""Order of the list, by state; all others wait, and come between."""
STALLS = timedelta(minutes=10)
"""Time without a step after which the page says so."""


@dataclass(frozen=True)
class Job:
    """A job in the list."""

    row: JobRow
    run: str
    progress: Progress | None
    may_start: str = ""
    """The queue's estimate, of a job that waits."""

    @property
    def age(self) -> str:
        return brief(datetime.now(UTC) - self.row.created)

    @property
    def ends(self) -> datetime | None:
        """When it ends at its pace; None where it does not run, or makes no steps."""
        runs = self.row.state == "running" and self.progress and self.progress.quiet < STALLS
        return self.progress.ends if self.progress and runs else None

    @property
    def needs_attention(self) -> str:
        """Why a person should look; empty where nobody needs to."""
        if self.row.state == "failed" and datetime.now(UTC) - self.row.created < DAY:
            return self.row.reason or "failed"
        if self.row.state in {"held", "admitted"}:  # admitted, and its pods cannot start
            return self.row.reason
        if self.row.state == "running" and self.progress and self.progress.quiet > STALLS:
            return f"no step for {brief(self.progress.quiet)}"
        return ""


@dataclass(frozen=True)
class Overview:
    """The first page."""

    name: str
    jobs: Sequence[Job]
    """Those that run, then those that wait, then those that have ended, each part with the newest first."""
    pools: Mapping[str, Sequence[Mapping[str, Any]]] | None
    """Pool → its nodes; None where the user may not list nodes."""
    quotas: Sequence[tuple[str, Pool]]
    """Queue and its quota of a pool, in the order of their names."""
    moment: datetime

    @property
    def gpus(self) -> int:
        return sum(pool.quota for _, pool in self.quotas)

    @property
    def busy(self) -> int:
        return sum(pool.used for _, pool in self.quotas)

    def number(self, *states: str) -> int:
        return sum(job.row.state in states for job in self.jobs)

    @property
    def failed_today(self) -> int:
        recent = [job for job in self.jobs if self.moment - job.row.created < DAY]
        return sum(job.row.state == "failed" for job in recent)

    @property
    def attention(self) -> list[tuple[str, str, str]]:
        """What a person should look at: its name, why, and the page or command about it."""
        found = [
            (node["node"], f"node of {pool} is {node['state']}", "")
            for pool, nodes in (self.pools or {}).items()
            for node in nodes
            if node["state"] not in {"ready", "gone"}
        ]
        for job in self.jobs:
            if why := job.needs_attention:
                found.append((job.row.name, why, f"/jobs/{job.row.team}/{job.row.name}"))
        return found


@dataclass(frozen=True)
class JobPage:
    """The page of one job."""

    job: Job
    curve: Curve | None
    """The loss over the steps; None before the first step, or where no metrics can be read."""
    events: Sequence[tuple[str, str]]
    """Clock and text of what happened, the newest first."""
    pods: Sequence[NodePod]
    lines: Sequence[str]
    figures: Sequence[tuple[str, str]]
    note: str = ""
    """Why metrics are missing."""


def read_overview(session: Session) -> Overview:
    """Read the cluster, its queues and the jobs of the user's teams."""
    cluster, now = MemberCluster(session), datetime.now(UTC)
    runs, listed = _runs(cluster, cluster.namespaces), rows(cluster)
    found = queues(cluster, listed, now)
    waiting = {(each.team, each.job): each for queue in found for each in queue.waiting}
    jobs = [_job(session, row, runs, waiting) for row in listed]
    jobs.sort(key=lambda job: (_ORDER.get(job.row.state, 1), -job.row.created.timestamp()))
    nodes = nodes_of(session)
    pools: dict[str, list[Mapping[str, Any]]] = {}
    for node in nodes or ():
        pools.setdefault(node["pool"], []).append(node)
    quotas = [(queue.name, pool) for queue in found for pool in queue.pools]
    name = session.context or session.stack_name
    return Overview(name, jobs, None if nodes is None else pools, quotas, now)


def read_job(session: Session, key: JobKey) -> JobPage | None:
    """Read one job with its metrics, nodes and last lines; None where the user sees no such job."""
    cluster = MemberCluster(session)
    if key.namespace not in cluster.namespaces:
        return None
    row = next((each for each in rows(cluster, key.namespace) if each.name == key.name), None)
    if row is None:
        return None
    pods, note = pods_of(cluster, key), ""
    run = _runs(cluster, [key.namespace]).get((key.team, key.name), "")
    try:
        metrics = read_metrics(session, key, run, pods)
    except TrainyardError as error:
        metrics, note = [], error.problems[0].got
    job = Job(row, run, progress_of(metrics))
    return JobPage(
        job, curve_of(metrics), events_of(metrics), pods, _last_lines(session, cluster, key, pods),
        figures_of(metrics), note,
    )  # fmt: skip


def _runs(cluster: MemberCluster, namespaces: Sequence[str]) -> dict[tuple[str, str], str]:
    """Team and name of each job → its run's folder."""
    found: list[Object] = [each for name in namespaces for each in cluster.objects(TRAIN_JOBS, name)]
    return {
        (names.team_of(about["namespace"]), about["name"]): (about.get("annotations") or {}).get(RUN, "")
        for about in (each["metadata"] for each in found)
    }


def _job(
    session: Session,
    row: JobRow,
    runs: Mapping[tuple[str, str], str],
    waiting: Mapping[tuple[str, str], PendingJob],
) -> Job:
    """Return a row of the list; elsewhere than on this host, a job's metrics are read on its own page."""
    run, pending = runs.get((row.team, row.name), ""), waiting.get((row.team, row.name))
    progress = None
    if run and session.is_on_host:
        progress = progress_of(on_host(session, JobKey(row.team, row.name), run))
    return Job(row, run, progress, shown(pending.start) if pending else "")


def _last_lines(session: Session, cluster: MemberCluster, key: JobKey, pods: Sequence[NodePod]) -> list[str]:
    """Return the last lines of the first node; of a job without pods, from the stored logs."""
    if pods:
        pod = pods[0]
        return cluster.last_lines(pod.namespace, pod.name, pod.container, LAST_LINES).splitlines()
    stored = StoredLogs(session, key)
    try:
        if not stored.exists():
            return []
        last = deque(stored.lines(Selection(node=0)), maxlen=LAST_LINES)
    except (TrainyardError, ApiError):
        return []
    return [line.text.decode(errors="replace") for line in last]
