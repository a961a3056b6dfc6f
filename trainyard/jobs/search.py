"""`trainyard job search`: submits a hyperparameter search, with a TrainJob per trial.

The trials share one study, a file beside their checkpoints. A trial with poor results ends early, and the
next one in the queue starts. A preempted trial is restarted and continues.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.errors import ExitCode, Problem, TrainyardError
from infra.stackfile import Stack
from infra.stackfile.job import JobSpec
from trainyard.jobs.key import JobKey
from trainyard.jobs.manifest import CHECKPOINTS, SOURCES, manifest, with_data
from trainyard.jobs.placement import placement_of
from trainyard.jobs.state import Jobs
from trainyard.jobs.submit import await_data, new_run
from trainyard.stack.session import Session
from trainyard_train.config_base import ConfigError
from trainyard_train.tune import Search, load_search

LABEL = "trainyard.dev/search"
"""Label of a search's jobs with its run."""


def submit_search(session: Session, file: Path) -> None:
    """Submit every trial of a search, with the stack's job as its pattern.

    Raises:
        TrainyardError: the search is wrong, and nothing was submitted; or the API server refused a trial.
    """
    job = session.job
    try:
        search, _ = load_search(str(file), ["run_dir=/mnt", *_overrides(job, session.stack)])
    except ConfigError as error:
        raise TrainyardError(
            [_wrong(file, problem) for problem in error.problems], ExitCode.WRONG_INPUT
        ) from None
    pattern = job.model_copy(update={"name": f"{job.name}-search"})
    run = new_run(session, JobKey(pattern.team, pattern.name))
    await_data(session, job)
    for number in range(search.trials):
        Jobs(session.api).submit(trial(pattern, search, run, number, session.stack))
    session.console.print(
        f"submitted {search.trials} trials as {pattern.name} {run} to the queue of team {job.team};"
        f" the best is in {_folder(pattern, run)}/best.json, what each found in its study.log",
        f"to end it: kubectl delete trainjobs --namespace team-{job.team} --selector {LABEL}={run}",
        sep="\n",
        highlight=False,
    )


def trial(pattern: JobSpec, search: Search, run: str, number: int, stack: Stack) -> dict[str, Any]:
    """Render the TrainJob of a trial: one process with an accelerator, which asks the study what to try."""
    one = {"num_nodes": 1, "accelerators_per_node": 1, "processes_per_node": 1}
    body = manifest(pattern.model_copy(update=one), run, stack.datasets, placement_of(stack))
    inside = search.model_copy(update={"config": Path(SOURCES, search.config)})
    body["metadata"]["name"] = f"{pattern.name}-{run.rpartition('-')[2]}-{number:03d}"
    body["metadata"]["labels"][LABEL] = run
    settings = [
        f"--set={override}" for override in [f"run_dir={_folder(pattern, run)}", *_overrides(pattern, stack)]
    ]
    trainer = body["spec"]["trainer"]
    trainer["command"] = ["python3", "-m", "trainyard_train.tune"]
    trainer["args"] = [inside.model_dump_json(), f"--one={body['metadata']['name']}", *settings]
    return body


def _folder(pattern: JobSpec, run: str) -> str:
    return f"{CHECKPOINTS}/{pattern.name}/{run}"


def _overrides(job: JobSpec, stack: Stack) -> list[str]:
    return [
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in with_data(job, stack.datasets).overrides.items()
    ]


def _wrong(file: Path, problem: str) -> Problem:
    return Problem(
        path=str(file),
        got=problem.removeprefix(f"{file}: "),
        allowed="a search as in docs/training.md, with settings that its config has",
        fix="correct it; nothing was submitted",
    )
