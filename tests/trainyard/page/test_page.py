"""The page: who gets an answer, and what it shows of the objects that the user may read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from infra.errors import Problem, TrainyardError
from tests.tables import table
from tests.trainyard.jobs.lists import (
    NAMESPACE,
    Lists,
    admitted,
    cluster_queue,
    condition,
    pod,
    research,
    train_job,
    workload,
)
from trainyard.jobs.key import RUN
from trainyard.page import server, views
from trainyard.page.charts import curve_of
from trainyard.page.server import COOKIE, page_of

HOST = "127.0.0.1:8321"
OURS = {"cookie": f"{COOKIE}=secret"}
STEPS: list[dict[str, Any]] = [
    {"time": 100.0, "event": "started", "attempt": 1, "step": 0, "steps": 8, "nodes": ["spot-0"]},
    *({"time": 100.0 + at, "event": "step", "attempt": 1, "step": at, "loss": 4.0 / at} for at in (1, 2, 3)),
    {"time": 104.0, "event": "notice", "attempt": 1, "step": 3, "nodes": ["spot-0"]},
    {"time": 110.0, "event": "resumed", "attempt": 2, "step": 2, "steps": 8, "nodes": ["spot-1"]},
    *({"time": 108.0 + at, "event": "step", "attempt": 2, "step": at, "loss": 4.0 / at} for at in (3, 4)),
]


def furnished(root: Path) -> tuple[Lists, Any]:
    """Make a cluster with a job that runs, one that waits, and one that failed with a hostile message."""
    jobs = [train_job(name) for name in ("runs", "waits")]
    jobs.append(train_job("fails", condition("Failed", message="<script>alert(1)</script>")))
    jobs[0]["metadata"]["annotations"] = {RUN: "run-001"}
    waits = condition("QuotaReserved", status="False", message="insufficient unused quota")
    records = [
        workload("runs", *admitted()),
        workload("waits", waits),
        workload("fails", *admitted(), condition("Finished")),
    ]
    cluster = research(*records, queue=cluster_queue(quota=8, used=2, pending=1), jobs=jobs)
    cluster.running = [pod("runs", number, f"spot-{number}") for number in range(2)]
    cluster.logs = {"runs-node-0-0-abcde": "one\ntwo\n"}
    cluster.api = SimpleNamespace(items=lambda *_: [])
    run = root / "research" / "runs" / "run-001"
    run.mkdir(parents=True)
    torn = "\n".join([*map(json.dumps, STEPS), '{"event": "step", "attempt": 1, "time": "soon"}', '{"ev'])
    (run / "metrics.jsonl").write_text(torn)
    session = SimpleNamespace(
        context="", stack_name="local", is_on_host=True, run_root=lambda team, job: root / team / job
    )
    return cluster, session


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    cluster, session = furnished(tmp_path)
    nodes = [
        {"node": "spot-0", "pool": "spot", "state": "ready"},
        {"node": "od", "pool": "od", "state": "not-ready"},
    ]
    monkeypatch.setattr(views, "MemberCluster", lambda _: cluster)
    monkeypatch.setattr(views, "nodes_of", lambda _: nodes)
    monkeypatch.setattr(views, "StoredLogs", lambda *_: SimpleNamespace(exists=lambda: False))
    return session


def ask(
    session: Any, path: str, headers: Mapping[str, str] = OURS, *, method: str = "GET", host: str = HOST
) -> httpx.Response:
    """Send one request, as a browser would."""

    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app=cast("Any", page_of(session, "secret", 8321)))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
            sent = [(name, value.encode("latin-1")) for name, value in headers.items()]
            return await client.request(method, path, headers=sent)  # type: ignore[arg-type]

    return asyncio.run(answer())


def test_the_address_of_the_command_opens_the_page_and_its_token_leaves_the_address(session: Any) -> None:
    opened = ask(session, "/?token=secret", {})
    assert (opened.status_code, opened.headers["location"]) == (307, "/")
    cookie = opened.headers["set-cookie"].lower()
    assert f"{COOKIE}=secret" in cookie
    assert {"httponly", "samesite=strict"} <= set(cookie.split("; "))
    assert ask(session, "/").status_code == 200


@pytest.mark.parametrize(("path", "headers", "method", "host", "status"), table(__file__, "others"))
def test_others_get_nothing(
    path: str, headers: dict[str, str], method: str, host: str, status: int, session: Any
) -> None:
    refused = ask(session, path, headers, method=method, host=host)
    assert refused.status_code == status
    assert "spot" not in refused.text
    assert refused.headers["content-security-policy"].startswith("default-src 'none'")


def test_the_first_page_has_the_figures_and_what_needs_a_person(session: Any) -> None:
    seen = views.read_overview(session)
    assert (seen.busy, seen.gpus, seen.number("running"), seen.number("queued")) == (2, 8, 1, 1)
    assert [job.row.name for job in seen.jobs] == ["runs", "waits", "fails"]
    assert str(seen.jobs[0].progress) == "step 4 of 8"
    assert [(name, why[:14]) for name, why, _ in seen.attention] == [
        ("od", "node of od is "),
        ("runs", "no step for 20"),  # since 1970
    ]
    page = ask(session, "/").text
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert 'title="od: not-ready"' in page


def test_a_jobs_page_has_its_curve_its_attempts_and_its_last_lines(session: Any) -> None:
    page = ask(session, "/jobs/research/runs").text
    assert "preempted: 8 s, 1 step repeated" in page
    assert "attempt 2, spot-1" in page
    assert "one\ntwo" in page
    assert "trainyard logs runs -f" in page
    part = ask(session, "/jobs/research/runs", {**OURS, "hx-request": "true"}).text
    assert "<html" not in part
    assert part.strip() in page


def test_a_curve_has_the_steps_that_are_in_the_weights() -> None:
    curve = curve_of(STEPS)
    assert curve is not None
    assert (curve.first, curve.last, curve.top, curve.bottom) == (1, 4, "4", "1")
    assert len(curve.points.split()) == 4
    assert [mark.x for mark in curve.marks] == [480.0]
    assert curve_of(STEPS[:2]) is None
    many = [
        {"time": float(at), "event": "step", "attempt": 1, "step": at, "loss": -1.0} for at in range(5000)
    ]
    assert len(getattr(curve_of(many), "points", "").split()) <= 600


def test_a_cluster_that_does_not_answer_is_said_on_the_page(
    session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Any) -> None:
        raise TrainyardError([Problem("the cluster's API", "no answer", "an answer", "sign in again")])

    monkeypatch.setattr(server, "read_overview", fails)
    assert "fix: sign in again" in ask(session, "/").text


def test_a_member_sees_no_nodes_and_no_other_team(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "nodes_of", lambda _: None)
    page = ask(session, "/").text
    assert "your credentials may not list nodes" in page
    assert NAMESPACE.removeprefix("team-") in page
