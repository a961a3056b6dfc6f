"""`trainyard status`: nodes, queues and jobs on one screen."""

from __future__ import annotations

from rich.table import Table

from trainyard.jobs import JobKey
from trainyard.session import Session

COLOURS = {"ready": "green", "not-ready": "yellow", "gone": "red", "complete": "green", "failed": "red"}


def show_status(session: Session) -> None:
    """Print what there is now."""
    if not session.cluster_exists:
        session.console.print(f"{session.stack_name}: no cluster; `make up` starts it")
        return
    status = session.cluster.status()
    session.console.print(f"[bold]{status.name}[/]: {status.state}, {status.endpoint}", highlight=False)
    nodes = _table("node", "pool", "state", "GPUs (simulated)")
    for node in status.nodes:
        nodes.add_row(node.name, node.pool, _coloured(node.state), str(node.gpus or "–"))
    session.console.print(nodes)
    jobs = _table("job", "team", "state", "flavor", "nodes")
    for job in session.jobs.all():
        metadata = job["metadata"]
        key = JobKey(metadata["namespace"].removeprefix("team-"), metadata["name"])
        state = session.jobs.state(key)
        jobs.add_row(key.name, key.team, _coloured(state.phase), state.flavor or "–", ", ".join(state.nodes))
    session.console.print(jobs if jobs.row_count else "no jobs; `trainyard submit` submits the stack's own")


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        table.add_column(column)
    return table


def _coloured(state: str) -> str:
    colour = COLOURS.get(state, "cyan")
    return f"[{colour}]{state}[/]"
