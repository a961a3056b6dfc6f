"""`trainyard status`: prints the cluster, its nodes and the jobs with their states on one screen."""

from __future__ import annotations

from http import HTTPStatus

import catalog
from engine.tables import PlainTable
from infra.clients.kubernetes import ApiError
from infra.common import names
from trainyard.jobs.state import Jobs
from trainyard.stack import nodes
from trainyard.stack.session import Session

COLOURS = {"ready": "green", "not-ready": "yellow", "gone": "red", "complete": "green", "failed": "red"}


def show_status(session: Session) -> None:
    """Print the cluster, its current nodes and the jobs."""
    if session.is_on_host:
        if not session.cluster_exists:
            session.console.print(f"{session.stack_name}: no cluster; `trainyard up` starts it")
            return
        _show_embedded(session)
    else:
        _show_remote(session)
    table, reasons = PlainTable("job", "team", "state", "flavor", "nodes"), []
    jobs = Jobs(session.api)
    for key in jobs.of_teams(session.namespaces):
        state = jobs.state(key)
        reasons += [f"{key.name}: {state.reason}"] if state.ended else []
        table.add_row(key.name, key.team, _coloured(state.phase), state.flavor or "–", ", ".join(state.nodes))
    if table.row_count:
        table.show(session.console)
    else:
        session.console.print("no jobs; `trainyard run` starts one")
    for reason in reasons:
        session.console.print(reason, highlight=False, markup=False, soft_wrap=True)


def _show_embedded(session: Session) -> None:
    status = session.cluster.status()
    session.console.print(f"[bold]{status.name}[/]: {status.state}, {status.endpoint}", highlight=False)
    table = PlainTable("node", "pool", "state", "GPUs (simulated)")
    for node in status.nodes:
        table.add_row(node.name, node.pool, _coloured(node.state), str(node.gpus or "–"))
    table.show(session.console)


def _show_remote(session: Session) -> None:
    """Show the nodes of the stack's pools as the API server knows them, where the user may see nodes."""
    api = session.api
    name = session.stack.name if session.has_file else session.context
    session.console.print(f"[bold]{name}[/]: {api.address}", highlight=False)
    try:
        found = nodes.of_pools(api)
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        session.console.print("nodes: these credentials may not list them")
        return
    if not found:
        session.console.print(f"no node has the label {names.POOL_LABEL}")
        return
    table = PlainTable("node", "pool", "state", "accelerators")
    for node in sorted(found, key=lambda each: (nodes.pool_of(each), each["metadata"]["name"])):
        offered = node["status"].get("allocatable") or {}
        number = sum(int(offered.get(resource, 0)) for resource in catalog.accelerator_resources())
        state = _coloured("ready" if nodes.is_ready(node) else "not-ready")
        table.add_row(node["metadata"]["name"], nodes.pool_of(node), state, str(number or "–"))
    table.show(session.console)


def _coloured(state: str) -> str:
    colour = COLOURS.get(state, "cyan")
    return f"[{colour}]{state}[/]"
