"""A search on the cluster: trials are jobs in the queue, pruned, or resumed after a node failure."""

import json
from pathlib import Path

import optuna
import pytest
import yaml
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from tests.e2e.manifests import NAMESPACE
from tests.e2e.stack import LocalStack, patched
from trainyard_train.contract import read_metrics

pytestmark = [pytest.mark.soak, pytest.mark.timeout(1800)]
TRIALS = 8
QUOTA = 4
"""Trials that run at once: the quota of both flavors."""
SETTINGS = {"steps": 160, "evaluate_every": 10, "checkpoint.every_steps": 10, "pace_seconds": 0.15}


def trials(folder: Path) -> list[FrozenTrial]:
    """Return the trials that the workers have stored so far."""
    log = folder / "study.log"
    if not log.exists():
        return []
    return optuna.load_study(
        study_name="search", storage=JournalStorage(JournalFileBackend(str(log)))
    ).get_trials()


def at_work(stack: LocalStack, folder: Path) -> str:
    """Wait for a trial that has taken some of its steps; return its node."""
    nodes: list[str] = []

    def found() -> bool:
        for log in folder.glob("trial-*/metrics.jsonl"):
            lines = read_metrics(log)
            step = max((line["step"] for line in lines), default=0)
            if SETTINGS["evaluate_every"] < step < SETTINGS["steps"] / 2:
                nodes.extend(node for line in lines if line["event"] == "started" for node in line["nodes"])
        return bool(nodes)

    stack.wait_until(found, "a trial at work")
    return nodes[0]


def phases(stack: LocalStack) -> list[str]:
    """Return the final condition of each of the search's jobs, empty for one that runs."""
    jobs = stack.get("trainjobs", "-n", NAMESPACE, "--selector=trainyard.dev/search=run-001")["items"]
    ends = [
        [each["type"] for each in job.get("status", {}).get("conditions", ()) if each["status"] == "True"]
        for job in jobs
    ]
    return [next((end for end in each if end in {"Complete", "Failed"}), "") for each in ends]


def test_a_search_is_queued_prunes_trials_and_survives_the_failure_of_a_node(
    stack: LocalStack, tmp_path: Path
) -> None:
    file = tmp_path / "search.yaml"
    space = {"optim.lr": {"low": 0.00001, "high": 0.3, "log": True}}
    file.write_text(
        yaml.safe_dump({"config": "training/configs/digits.yaml", "trials": TRIALS, "search": space})
    )
    folder = stack.data / "checkpoints" / "research" / "tuned-search" / "run-001"
    with stack.declared(patched({"job.name": "tuned", "settings": SETTINGS})):
        output = stack.trainyard("job", "search", str(file), "--job", str(stack.job_file))
    assert f"submitted {TRIALS} trials as tuned-search run-001 to the queue of team research" in output.text

    stack.wait_until(
        lambda: len(trials(folder)) >= QUOTA or "Failed" in phases(stack), f"{QUOTA} trials at work"
    )
    assert phases(stack).count("") >= TRIALS - len(trials(folder)), "the others wait in the queue"
    node = at_work(stack, folder)
    stack.trainyard("local", "preempt", node, "--notice", "10")
    stack.trainyard("local", "preempt", node, "--return")

    stack.wait_until(lambda: phases(stack) == ["Complete"] * TRIALS, f"{TRIALS} trials at their end")
    found = trials(folder)
    ended = [trial for trial in found if trial.state in {TrialState.COMPLETE, TrialState.PRUNED}]
    assert len(ended) == TRIALS, found
    assert any(trial.state == TrialState.PRUNED for trial in ended)
    assert len({trial.params["optim.lr"] for trial in ended}) == TRIALS
    failed = [trial for trial in found if trial.state == TrialState.FAIL]
    assert failed, f"{node} had a trial"
    completed = [trial.params for trial in ended]
    assert all(trial.params in completed for trial in failed), "failed trials were retried"
    best = json.loads((folder / "best.json").read_text())
    complete = [trial for trial in ended if trial.state == TrialState.COMPLETE]
    assert best["loss"] == min(trial.value or 0.0 for trial in complete)
    assert best["loss"] < 1.0
