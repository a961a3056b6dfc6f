"""`trainyard run` and `up --job` check a job file against the stack file before they ask a cluster."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.paths import REPOSITORY, Paths
from infra.errors import InputError
from tests.problems import problem_of
from trainyard.commands.run import run
from trainyard.commands.up import up
from trainyard.stack.session import Session

DEMO = REPOSITORY / "stacks" / "local.job.yaml"


class ClusterAskedError(Exception):
    """A cluster was asked."""


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(_: Session) -> None:
        raise ClusterAskedError

    monkeypatch.setattr(Session, "api", property(asked))
    monkeypatch.delenv("TRAINYARD_STACKS", raising=False)
    assert Paths.from_environment().stack_file("local").exists()


def written(folder: Path, **changes: Any) -> Path:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(DEMO.read_text()) | changes, sort_keys=False))
    return file


@pytest.mark.parametrize(
    "command",
    [lambda file: run([str(file)], stack="local"), lambda file: up("local", file)],
    ids=["run", "up"],
)
def test_a_job_that_does_not_fit_the_stack_is_refused_at_its_line(
    command: Callable[[Path], None], tmp_path: Path
) -> None:
    file = written(tmp_path, team="reserch")
    problem = problem_of(lambda: command(file))
    assert (problem.location, problem.fix) == (f"{file}:2:7", "did you mean 'research'?")


@pytest.mark.parametrize("options", [{"context": "elsewhere"}, {"nodes": 2}, {"gpus": 2}], ids=str)
def test_a_job_whose_cluster_or_size_an_option_names_is_left_to_the_cluster(
    options: dict[str, Any], tmp_path: Path
) -> None:
    file = written(tmp_path, nodes=3)
    sent = partial(run, [str(file)], stack="local", **options)
    with pytest.raises(ClusterAskedError):
        sent()
    with pytest.raises(InputError, match="3 nodes"):
        run([str(file)], stack="local")
