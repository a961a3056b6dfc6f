"""`trainyard job search`: submits a hyperparameter search, with a TrainJob per trial.

The trials share one study, a file beside their checkpoints. A trial with poor results ends early, and the
next one in the queue starts. A preempted trial is restarted and continues.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.common import names
from infra.errors import ExitCode, Problem, TrainyardError
from infra.stackfile import load_job
from infra.stackfile.job import JobSpec, settings_in
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.key import JobKey
from trainyard.jobs.manifest import CHECKPOINTS, SOURCES, JobDataset, data_settings, manifest
from trainyard.jobs.placement import PlacedJob, Size, choose, flavors_of
from trainyard.jobs.runtimes import runtime_of
from trainyard.jobs.state import Jobs
from trainyard.jobs.submit import await_data, new_run
from trainyard.stack.session import Session
from trainyard_train.config_base import ConfigError
from trainyard_train.tune import Search, load_search

LABEL = "trainyard.dev/search"
"""Label of a search's jobs with its run."""
_ONE: Mapping[str, int] = {"num_nodes": 1, "accelerators_per_node": 1, "processes_per_node": 1}
"""Size of a trial."""


def submit_search(session: Session, file: Path, job_file: Path) -> None:
    """Submit every trial of a search, with a job as its pattern.

    Raises:
        TrainyardError: the search is wrong, and nothing was submitted; or the API server refused a trial.
    """
    job = load_job(job_file, stack=session.declared_stack)
    try:
        search, _ = load_search(str(file), ["run_dir=/mnt", *_settings(job, ())])
    except ConfigError as error:
        raise TrainyardError(
            [_wrong(file, problem) for problem in error.problems], ExitCode.WRONG_INPUT
        ) from None
    cluster = MemberCluster(session)
    pattern = job.model_copy(update={"name": f"{job.name}-search", **_ONE})
    placed = choose(pattern, Size(), flavors_of(cluster, names.team_namespace(job.team)))
    datasets = runtime_of(cluster, placed.job).datasets
    run = new_run(session, JobKey(pattern.team, pattern.name))
    await_data(session, job)
    for number in range(search.trials):
        Jobs(session.api).submit(trial(placed, search, run, number, datasets))
    session.console.print(
        f"submitted {search.trials} trials as {pattern.name} {run} to the queue of team {job.team};"
        f" the best is in {_folder(pattern, run)}/best.json, what each found in its study.log",
        f"to end it: kubectl delete trainjobs --namespace team-{job.team} --selector {LABEL}={run}",
        sep="\n",
        highlight=False,
    )


def trial(
    placed: PlacedJob, search: Search, run: str, number: int, datasets: Sequence[JobDataset]
) -> dict[str, Any]:
    """Render the TrainJob of a trial: one process with an accelerator, which asks the study what to try."""
    pattern = placed.job
    body = manifest(pattern, run, datasets, placed.placement)
    inside = search.model_copy(update={"config": Path(SOURCES, search.config)})
    body["metadata"]["name"] = f"{pattern.name}-{run.rpartition('-')[2]}-{number:03d}"
    body["metadata"]["labels"][LABEL] = run
    given = [f"run_dir={_folder(pattern, run)}", *_settings(pattern, datasets)]
    settings = [f"--set={each}" for each in given]
    trainer = body["spec"]["trainer"]
    trainer["command"] = ["python3", "-m", "trainyard_train.tune"]
    trainer["args"] = [inside.model_dump_json(), f"--one={body['metadata']['name']}", *settings]
    return body


def _folder(pattern: JobSpec, run: str) -> str:
    return f"{CHECKPOINTS}/{pattern.name}/{run}"


def _settings(job: JobSpec, datasets: Sequence[JobDataset]) -> list[str]:
    written = [f"{key}={value}" for _, key, value in settings_in(job.args or ())]
    return [*written, *(f"{key}={value}" for key, value in data_settings(job, datasets).items())]


def _wrong(file: Path, problem: str) -> Problem:
    return Problem(
        path=str(file),
        got=problem.removeprefix(f"{file}: "),
        allowed="a search as in docs/training.md, with settings that its config has",
        fix="correct it; nothing was submitted",
    )
