"""`trainyard measure`: stores how long a checkpoint takes on a stack, from a run's metrics or as an
assumption, for the spot policies.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from infra.clients.kubernetes import ApiServer
from infra.common import names
from infra.errors import InputError, Problem, TrainyardError
from infra.platform.programs import program
from trainyard.jobs import run_folder
from trainyard.jobs.key import JobKey
from trainyard.jobs.manifest import CHECKPOINTS
from trainyard.stack.session import Session
from trainyard_train.contract import FILE, parse_line, read_metrics

PULL_SECONDS = 1200.0
"""Maximum seconds to pull a training image: it has ten gigabytes and more, and the node may not have it
yet."""
POLL_SECONDS = 1.0


def measure(metrics: Path, stack_file: Path) -> Path:
    """Write `checkpoint.<stack>.json` from a run's metrics, and return its path.

    Raises:
        InputError: the file cannot be read, or no checkpoint was committed in that run.
    """
    where = str(metrics) if metrics.is_file() else f"{metrics}: no such file"
    return _write(stack_file, read_metrics(metrics) if metrics.is_file() else [], where)


def measure_on_cluster(session: Session) -> Path:
    """Write `checkpoint.<stack>.json` from the newest run of the stack's job, which a pod reads.

    Raises:
        TrainyardError: there is no run, it has committed no checkpoint, or the pod does not start.
    """
    job = session.job
    key = JobKey(job.team, job.name)
    if session.is_on_host:
        text = _newest_metrics(session.run_root(key.team, key.name))
    else:
        runtime = job.runtime or names.runtime("torch", names.ANY_FABRIC)
        text = _read_by_pod(session, key, _pod(session, key, runtime))
    lines = [line for line in map(parse_line, text.splitlines()) if line]
    return _write(session.stack_file, lines, f"the runs of job {key.name}")


def _newest_metrics(runs: Path) -> str:
    """Read the metrics file that was written last; empty where no run has one."""
    files = sorted(runs.glob(f"*/{FILE}"), key=lambda file: file.lstat().st_mtime)
    return run_folder.read_from(files[-1].parent, FILE, 0).decode(errors="replace") if files else ""


def assume(seconds: float, stack_file: Path) -> Path:
    """Write an assumption, which counts for some days: nothing can be measured before a first `up`."""
    today = datetime.now(UTC).date().isoformat()
    return _put(stack_file, {"seconds": seconds, "assumed": today})


def _write(stack_file: Path, lines: Sequence[dict[str, Any]], where: str) -> Path:
    """Write the duration of the longest checkpoint, from its start to its commit, and the day of its end."""
    saved = [line for line in lines if line["event"] == "checkpoint" and _has_times(line)]
    if not saved:
        fix = "let the stack's job save a checkpoint first, or name the metrics.jsonl of a run of it"
        raise InputError([Problem(where, "no committed checkpoint", "a run with checkpoints", fix)])
    longest = max(saved, key=lambda line: float(line["seconds"]))
    day = datetime.fromtimestamp(float(longest["time"]), UTC).date()
    return _put(stack_file, {"seconds": longest["seconds"], "measured": day.isoformat()})


def _has_times(line: Mapping[str, Any]) -> bool:
    """Whether a line tells when, and how long: a job may write what it likes into its file."""
    return all(isinstance(line.get(key), int | float) for key in ("seconds", "time"))


def _put(stack_file: Path, content: dict[str, Any]) -> Path:
    stack = stack_file.name.removeprefix("Pulumi.").removesuffix(".yaml")
    file = stack_file.parent / f"checkpoint.{stack}.json"
    file.write_text(json.dumps(content) + "\n")
    return file


def _pod(session: Session, key: JobKey, runtime: str) -> dict[str, Any]:
    """Render the runtime's pod with a reader instead of the ranks, and without accelerators."""
    found = session.api.get(f"/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes/{runtime}")
    jobs = found["spec"]["template"]["spec"]["replicatedJobs"]
    spec = jobs[0]["template"]["spec"]["template"]["spec"]
    container = next(each for each in spec["containers"] if each["name"] == "node")
    volume = {"name": names.CHECKPOINTS_CLAIM, "mountPath": CHECKPOINTS, "readOnly": True}
    reader = {
        "name": "reader",
        "image": container["image"],
        "imagePullPolicy": container.get("imagePullPolicy", "IfNotPresent"),
        "command": ["python3", "-c", program("print_checkpoints.py"), f"{CHECKPOINTS}/{key.name}"],
        "securityContext": container["securityContext"],
        "resources": {
            "requests": {"cpu": "100m", "memory": "64Mi"},
            "limits": {"cpu": "1", "memory": "256Mi"},
        },
        "volumeMounts": [volume],
    }
    claim = {"claimName": names.CHECKPOINTS_CLAIM, "readOnly": True}
    return {
        "metadata": {"name": f"measure-{secrets.token_hex(3)}", "namespace": key.namespace},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": spec["securityContext"],
            "containers": [reader],
            "volumes": [{"name": names.CHECKPOINTS_CLAIM, "persistentVolumeClaim": claim}],
        },
    }


def _read_by_pod(session: Session, key: JobKey, pod: dict[str, Any]) -> str:
    """Run the pod, return its log, and remove it whatever happens."""
    api, name = session.api, pod["metadata"]["name"]
    pods = f"/api/v1/namespaces/{key.namespace}/pods"
    api.create(pods, pod)
    try:
        with session.progress.task(f"pod {name}"):
            _await_end(api, name, key.namespace)
        return api.read(f"{pods}/{name}/log").decode()
    finally:
        api.delete(f"{pods}/{name}", {"gracePeriodSeconds": 0})


def _await_end(api: ApiServer, name: str, namespace: str) -> None:
    deadline = time.monotonic() + PULL_SECONDS
    while time.monotonic() < deadline:
        status = api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
        if status.get("phase") == "Succeeded":
            return
        if status.get("phase") == "Failed":
            break
        time.sleep(POLL_SECONDS)
    states = [each.get("state", {}) for each in status.get("containerStatuses") or ()]
    waiting = [each["waiting"] for each in states if "waiting" in each]
    reason = ", ".join(f"{each.get('reason')}: {each.get('message')}" for each in waiting) or status["phase"]
    fix = "look at the pod's image and the team's volume, or name the metrics.jsonl of a run"
    raise TrainyardError([Problem(f"pod {name} in {namespace}", reason, "a pod that reads the volume", fix)])
