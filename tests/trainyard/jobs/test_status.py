"""`trainyard status`: nodes and jobs, as text and as data, also where the user may not list nodes."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from infra.clients.kubernetes import ApiError
from infra.common import names
from infra.stackfile.queue import TeamSpec
from trainyard.forms import Form
from trainyard.jobs import status
from trainyard.jobs.key import JobKey
from trainyard.jobs.saves import Save
from trainyard.jobs.state import JobState
from trainyard.stack import nodes

NODE = {
    "metadata": {"name": "spot-0", "labels": {names.POOL_LABEL: "spot"}},
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "allocatable": {"nvidia.com/gpu": "8", "cpu": "4"},
    },
}
STATES = {
    JobKey("research", "digits"): JobState("running", "spot", nodes=("spot-0",)),
    JobKey("research", "trees"): JobState("failed", reason="exit code 3"),
}


class FakeJobs:
    def __init__(self, _api: object) -> None:
        pass

    def of_teams(self, _namespaces: object) -> list[JobKey]:
        return [*STATES]

    def state(self, key: JobKey) -> JobState:
        return STATES[key]


def shown(form: Form, monkeypatch: pytest.MonkeyPatch, *, code: int = 0) -> str:
    def of_pools(_api: object) -> list[Any]:
        if code:
            raise ApiError(code, "nodes is forbidden")
        return [NODE]

    monkeypatch.setattr(status, "Jobs", FakeJobs)
    save = Save(8400, datetime.now(UTC) - timedelta(hours=9))
    monkeypatch.setattr(status, "last_saves", lambda _api, running: dict.fromkeys(running, save))
    monkeypatch.setattr(nodes, "of_pools", of_pools)
    console, api = Console(file=io.StringIO(), width=120), SimpleNamespace(address="https://api")
    session: Any = SimpleNamespace(
        is_on_host=False, has_file=False, context="trial", namespaces=[], console=console, api=api,
        declared_stack=SimpleNamespace(teams=[TeamSpec(name="trial", queue="gpu", expires=date(2026, 1, 1))]),
    )  # fmt: skip
    status.show_status(session, form)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_text_and_data_have_the_same_nodes_and_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    text, data = shown(Form.TEXT, monkeypatch), json.loads(shown(Form.JSON, monkeypatch))
    assert (data["name"], data["endpoint"]) == ("trial", "https://api")
    assert data["nodes"] == [{"node": "spot-0", "pool": "spot", "state": "ready", "accelerators": 8}]
    assert [(job["job"], job["state"], job["nodes"]) for job in data["jobs"]] == [
        ("digits", "running", ["spot-0"]),
        ("trees", "failed", []),
    ]
    assert [(job["saved"] or {}).get("step") for job in data["jobs"]] == [8400, None]
    saved = "digits: last durable checkpoint 9 h ago (step 8,400)"
    over = "warning team trial admits no job: it expired on 2026-01-01"
    for word in (over, "trial: https://api", "spot-0", "ready", saved, "trees: exit code 3"):
        assert word in text


def test_who_may_not_list_nodes_sees_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "may not list them" in shown(Form.TEXT, monkeypatch, code=403)
    data = json.loads(shown(Form.JSON, monkeypatch, code=403))
    assert data["nodes"] is None and len(data["jobs"]) == 2
    with pytest.raises(ApiError):
        shown(Form.JSON, monkeypatch, code=500)
