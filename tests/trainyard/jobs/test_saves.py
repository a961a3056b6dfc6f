"""`trainyard jobs` says how old the newest durable checkpoint of a running job is."""

import io
import json
import re
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from infra.clients.kubernetes import ApiError
from infra.clients.kubernetes.pods import ProgramExit
from tests.trainyard.jobs.lists import admitted, pod, research, train_job, workload
from trainyard.forms import Form
from trainyard.jobs import listing
from trainyard.stack.remote import Remote

SAVED = [("started", 0, 20), ("checkpoint", 8400, 9), ("checkpoint_failed", 9000, 1)]
SLOW = json.dumps({"event": "fabric", "attempt": 1, "time": 1, "warns": ["n1: NCCL\x1b uses 2 of 4 NICs"]})
FOREIGN = '{"event": "checkpoint", "attempt": 1, "time": "x", "step": "\\u001b[31m"}'


def metrics(events: list[tuple[str, int, int]]) -> str:
    """Return lines of metrics: event, step and hours ago."""
    lines = [{"event": e, "step": n, "attempt": 1, "time": time.time() - 3600 * ago} for e, n, ago in events]
    return "\n".join(map(json.dumps, lines))


@pytest.mark.parametrize(
    ("text", "step", "line"),
    [
        (metrics(SAVED), 8400, r"digits: last durable checkpoint 9 h( \d+ min)? ago \(step 8,400\)"),
        (f"{metrics(SAVED)}\n{SLOW}", 8400, r"digits: last .*\(step 8,400\);\s*n1: NCCL uses 2\s*of 4.*"),
        (metrics(SAVED[:1]), 0, r"digits: no durable checkpoint since its start 20 h( \d+ min)? ago"),
        *((text, None, "") for text in (FOREIGN, "torn", "", None)),
    ],
    ids=["saved", "slow", "not yet", "foreign", "torn", "empty", "refused"],  # the texts have times of today
)
def test_a_running_job_says_when_it_last_saved(
    text: str | None, step: int | None, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = research(workload("digits", *admitted()), jobs=[train_job("digits")])
    cluster.running = [pod("digits", 0, "a"), pod("digits", 1, "b")]
    cluster.api = SimpleNamespace(items=lambda *_: cluster.running)

    def run(_: object, inside: Any, command: list[str], _seconds: float) -> ProgramExit:
        if text is None:
            raise ApiError(403, "pods/exec is forbidden")
        assert inside.name.startswith("digits-node-0-0")
        (tmp_path / "metrics.jsonl").write_text(text)
        variables = {"TRAINYARD_RUN_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"}
        ended = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        return ProgramExit(ended.returncode, ended.stdout, ended.stderr)

    monkeypatch.setattr(Remote, "run", run)
    monkeypatch.setattr(listing, "MemberCluster", lambda _: cluster)
    shown = {form: Console(file=io.StringIO(), width=80) for form in (Form.TEXT, Form.JSON)}
    for form, console in shown.items():
        listing.show_jobs(SimpleNamespace(console=console), form, watch=False)  # type: ignore[arg-type]
    plain, data = (str(each.file.getvalue()) for each in shown.values())  # type: ignore[attr-defined]
    assert re.fullmatch(line, "".join(plain.splitlines()[2:]))
    assert (json.loads(data)[0]["saved"] or {}).get("step") == step
