"""`trainyard status`: prints the cluster, its nodes and the jobs with their states on one screen."""

import json
from http import HTTPStatus
from typing import Any

import catalog
from engine.tables import PlainTable
from infra.clients.kubernetes import ApiError
from infra.common import names
from infra.stackfile.self_service import expiry_warnings
from trainyard.forms import Form
from trainyard.jobs.saves import last_saves
from trainyard.jobs.state import Jobs
from trainyard.stack import nodes
from trainyard.stack.session import Session

COLOURS = {"ready": "green", "not-ready": "yellow", "gone": "red", "complete": "green", "failed": "red"}


def show_status(session: Session, form: Form) -> None:
    """Print the cluster, its current nodes and the jobs."""
    exists = not session.is_on_host or session.cluster_exists
    found = status_of(session) if exists else {"name": session.stack_name, "state": "no cluster"}
    if form is Form.JSON:
        session.console.file.write(json.dumps(found, indent=2) + "\n")
    elif not exists:
        session.console.print(f"{session.stack_name}: no cluster; `trainyard up` starts it")
    else:
        _print(session, found)


def status_of(session: Session) -> dict[str, Any]:
    """Return the cluster, its nodes (null where the user may not list them) and the jobs, as plain data."""
    jobs, rows = Jobs(session.api), []
    states = {key: jobs.state(key) for key in jobs.of_teams(session.namespaces)}
    saves = last_saves(session.api, [key for key, state in states.items() if state.phase == "running"])
    for key, state in states.items():
        row = {"job": key.name, "team": key.team, "state": state.phase, "flavor": state.flavor}
        save = saves.get(key)
        reason = (state.reason if state.ended or state.flavor else "") or str(save or "")
        saved = {"saved": save.data if save else None}
        rows.append({**row, "nodes": list(state.nodes), "reason": reason, **saved})
    if session.is_on_host:
        status = session.cluster.status()
        about = {"name": status.name, "state": status.state, "endpoint": status.endpoint}
        return {**about, "nodes": nodes_of(session), "jobs": rows}
    name = session.stack.name if session.has_file else session.context
    return {"name": name, "endpoint": session.api.address, "nodes": nodes_of(session), "jobs": rows}


def nodes_of(session: Session) -> list[dict[str, Any]] | None:
    """Return the nodes of the pools: on this host's cluster those that are gone too, else as the API server
    knows them; None where it refuses to list any.
    """
    if session.is_on_host:
        own = session.cluster.status().nodes
        return [
            {"node": each.name, "pool": each.pool, "state": each.state, "accelerators": each.gpus}
            for each in own
        ]
    try:
        found = nodes.of_pools(session.api)
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return None
    rows = []
    for node in sorted(found, key=lambda each: (nodes.pool_of(each), each["metadata"]["name"])):
        offered = node["status"].get("allocatable") or {}
        number = sum(int(offered.get(resource, 0)) for resource in catalog.accelerator_resources())
        state = "ready" if nodes.is_ready(node) else "not-ready"
        row = {"node": node["metadata"]["name"], "pool": nodes.pool_of(node), "state": state}
        rows.append({**row, "accelerators": number})
    return rows


def _print(session: Session, found: dict[str, Any]) -> None:
    about = ", ".join(found[key] for key in ("state", "endpoint") if key in found)
    session.console.print(f"[bold]{found['name']}[/]: {about}", highlight=False)
    for warning in expiry_warnings(session.declared_stack) if session.declared_stack else ():
        session.console.print(f"[yellow]warning[/] {warning}", highlight=False, soft_wrap=True)
    if found["nodes"] is None:
        session.console.print("nodes: these credentials may not list them")
    elif not found["nodes"]:
        session.console.print(f"no node has the label {names.POOL_LABEL}")
    else:
        unit = "GPUs (simulated)" if session.is_on_host else "accelerators"
        table = PlainTable("node", "pool", "state", unit)
        for node in found["nodes"]:
            number = str(node["accelerators"] or "–")
            table.add_row(node["node"], node["pool"], _coloured(node["state"]), number)
        table.show(session.console)
    table = PlainTable("job", "team", "state", "flavor", "nodes")
    for job in found["jobs"]:
        where = ", ".join(job["nodes"])
        table.add_row(job["job"], job["team"], _coloured(job["state"]), job["flavor"] or "–", where)
    if table.row_count:
        table.show(session.console)
    else:
        session.console.print("no jobs; `trainyard run` starts one")
    for job in found["jobs"]:
        if job["reason"]:
            text = f"{job['job']}: {job['reason']}"
            session.console.print(text, highlight=False, markup=False, soft_wrap=True)


def _coloured(state: str) -> str:
    colour = COLOURS.get(state, "cyan")
    return f"[{colour}]{state}[/]"
