"""`trainyard jobs`: lists the jobs of the user's teams, once or at each change."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any

from rich.console import Console
from rich.live import Live

from engine.tables import PlainTable
from infra.clients.kubernetes import Object
from infra.common import names
from trainyard.forms import Form
from trainyard.jobs import workloads
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.key import JOB, JOB_SET_NAME, JOB_SETS, TRAIN_JOBS, WORKLOADS, JobKey
from trainyard.jobs.node_pods import CONTAINER
from trainyard.jobs.saves import last_saves
from trainyard.jobs.state import JobState, state_of, with_reason
from trainyard.jobs.timeline import brief
from trainyard.jobs.workloads import owner
from trainyard.stack.session import Session

POLL_SECONDS = 2.0
COLOURS = {
    "running": "green",
    "complete": "green",
    "held": "red",
    "stopped": "red",
    "failed": "red",
    "paused": "yellow",
    "pausing": "yellow",
}
_HELD = re.compile(r"^trainyard: (failed with exit code \d+); this pod is held for (\d+) s", re.MULTILINE)
"""The log line of hold_failed.sh, the only sign of a held pod, since pods may not write to the API."""
_LAST_LINES = 20
"""Number of last lines that are searched for the log line above: a failed pod logs hardly anything after
it."""


@dataclass(frozen=True)
class JobRow:
    """Row of the list of jobs."""

    name: str
    team: str
    state: str
    """Phase as in `JobState.phase`, or `held`: the job has failed, and its pods are retained for a while."""
    accelerators: int | None
    """Accelerators of all its nodes; None until the queue has seen the job."""
    nodes: int | None
    flavor: str
    priority: str
    restarts: int
    """Number of times that all of its pods were restarted."""
    created: datetime
    reason: str
    """Reason why the job waits, does not start, has ended or is paused."""
    message: str
    """What Kueue itself says, of which `reason` is in our words."""
    running_on: tuple[str, ...]
    saved: dict[str, Any] | None = None
    """Step and time of its newest durable checkpoint, where it is known."""


def show_jobs(session: Session, form: Form, *, watch: bool, verbose: bool = False) -> None:
    """Print the jobs of the user's teams, if `verbose` with Kueue's messages.

    With `watch` they are printed again whenever something has changed.
    """
    cluster = MemberCluster(session)
    if not watch:
        _print(session.console, _with_saves(cluster, rows(cluster)), form, verbose=verbose)
    elif form is Form.JSON:
        for found in changes(cluster):
            session.console.file.write(_json(found, indent=None) + "\n")
            session.console.file.flush()
    else:
        with Live(console=session.console, auto_refresh=False) as live:
            for found in changes(cluster):
                live.update(_table(found), refresh=True)


def _with_saves(cluster: MemberCluster, found: Sequence[JobRow]) -> list[JobRow]:
    keys = {JobKey(row.team, row.name): row for row in found}
    saves = last_saves(cluster.api, [key for key, row in keys.items() if row.state == "running"])
    return [
        replace(row, reason=row.reason or str(save), saved=save.data) if (save := saves.get(key)) else row
        for key, row in keys.items()
    ]


def changes(cluster: MemberCluster) -> Iterator[list[JobRow]]:
    """Yield the jobs now, and again after each change, until the user stops it."""
    before: list[JobRow] | None = None
    while True:
        now = rows(cluster)
        if now != before:
            yield now
        before = now
        time.sleep(POLL_SECONDS)


def rows(cluster: MemberCluster, *namespaces: str) -> list[JobRow]:
    """Read all jobs of the user's teams, or those of some of their namespaces, the newest last."""
    chosen = namespaces or cluster.namespaces
    found = [row for namespace in chosen for row in _of_namespace(cluster, namespace)]
    return sorted(found, key=lambda row: (row.created, row.team, row.name))


def _of_namespace(cluster: MemberCluster, namespace: str) -> Iterator[JobRow]:
    jobs = cluster.objects(TRAIN_JOBS, namespace)
    if not jobs:
        return
    records = {
        owner(each)[1]: each for each in cluster.objects(WORKLOADS, namespace) if owner(each)[0] == "TrainJob"
    }
    sets = {each["metadata"]["name"]: each for each in cluster.objects(JOB_SETS, namespace)}
    pods: dict[str, list[Object]] = defaultdict(list)
    for pod in cluster.pods(namespace):
        pods[pod["metadata"]["labels"].get(JOB_SET_NAME, "")].append(pod)
    events = cache(partial(cluster.events, namespace))
    for job in jobs:
        name = job["metadata"]["name"]
        own = pods[name]
        running = [pod for pod in own if pod["status"].get("phase") == "Running"]
        state = with_reason(state_of(job, record := records.get(name, {}), own), own, events)
        held = _held(cluster, job, running) if state.phase in {"running", "admitted"} else ""
        yield _row(
            job, record, sets.get(name, {}), replace(state, phase="held", reason=held) if held else state
        )


def _held(cluster: MemberCluster, job: Object, running: Sequence[Object]) -> str:
    """Return why a job's pods are retained after its failure; empty where they are not.

    Only the logs of jobs with `hold_on_failure` are read.
    """
    about = job["metadata"]
    asked = json.loads((about.get("annotations") or {}).get(JOB, "{}"))
    if "hold_on_failure" not in asked:
        return ""
    for pod in running:
        name = pod["metadata"]["name"]
        if found := _HELD.search(cluster.last_lines(about["namespace"], name, CONTAINER, _LAST_LINES)):
            look, end = f"trainyard shell {about['name']}", f"trainyard cancel {about['name']}"
            return (
                f"{found[1]} on {pod['spec']['nodeName']}, held for {found[2]} s from then on: {look}; {end}"
            )
    return ""


def _row(job: Object, record: Object, job_set: Object, state: JobState) -> JobRow:
    about = job["metadata"]
    return JobRow(
        name=about["name"],
        team=names.team_of(about["namespace"]),
        state=state.phase,
        accelerators=workloads.accelerators(record) if record else None,
        nodes=workloads.nodes(record) if record else None,
        flavor=state.flavor,
        priority=workloads.priority(record) if record else "",
        restarts=int(job_set.get("status", {}).get("restarts", 0)),
        created=workloads.created(job),
        reason=state.reason,
        message=state.message,
        running_on=state.nodes,
    )


def _print(console: Console, found: Sequence[JobRow], form: Form, *, verbose: bool) -> None:
    if form is Form.JSON:
        console.file.write(_json(found, indent=2) + "\n")
        return
    if not found:
        console.print("no jobs")
        return
    _table(found).show(console)
    for row in found:
        said = f"Kueue: {row.message}" if verbose and row.message else ""
        for text in filter(None, (row.reason, said)):
            console.print(f"{row.name}: {text}", highlight=False, markup=False, soft_wrap=True)


def _json(found: Sequence[JobRow], indent: int | None) -> str:
    plain = [{**asdict(row), "created": row.created.isoformat()} for row in found]
    return json.dumps(plain, indent=indent)


def _table(found: Sequence[JobRow]) -> PlainTable:
    table = PlainTable("job", "team", "state", "GPUs", "flavor", "priority", "restarts", "age", "nodes")
    for row in found:
        state = f"[{COLOURS.get(row.state, 'cyan')}]{row.state}[/]"
        number = "–" if row.accelerators is None else str(row.accelerators)
        age = brief(datetime.now(UTC) - row.created)
        where = ", ".join(row.running_on)
        table.add_row(
            row.name,
            row.team,
            state,
            number,
            row.flavor or "–",
            row.priority or "–",
            str(row.restarts),
            age,
            where,
        )
    return table
