"""`trainyard job search`: the TrainJobs of its trials, as a fake API server receives them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from engine.progress import PlainProgress
from infra.clients.kubernetes import ApiServer, ClusterAccess
from infra.errors import TrainyardError
from infra.stackfile import parse_job
from infra.stackfile.job import JobSpec
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.share import Share, share_of_pool
from tests.servers import QuietHandler, kubeconfig_of, serving
from tests.tables import table
from trainyard.jobs import search as searching
from trainyard.jobs.key import ORIGIN
from trainyard.jobs.placement import JobPlacement, PlacedJob
from trainyard.jobs.search import LABEL, submit_search, trial
from trainyard_train import tune
from trainyard_train.tune import read_search

JOB, SEARCH = table(__file__).values()


@pytest.fixture
def posted() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Start a fake API server; the list has the requests, and its first entry has the server's URL."""
    requests: list[tuple[str, dict[str, Any]]] = []

    class JobHandler(QuietHandler):
        def do_POST(self) -> None:
            body = self.body()
            taken = body["metadata"]["name"] in [sent["metadata"]["name"] for _, sent in requests[1:]]
            requests.append((self.path, body))
            answer = {"kind": "Status", "reason": "AlreadyExists"} if taken else body
            self.respond(409 if taken else 201, answer)

    with serving(JobHandler) as server:
        requests.append((f"http://127.0.0.1:{server.server_port}", {}))
        yield requests


@pytest.fixture(autouse=True)
def _placed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the cluster have one place, and no data."""
    for name in ("MemberCluster", "flavors_of"):
        monkeypatch.setattr(searching, name, lambda *_: None)
    monkeypatch.setattr(searching, "choose", lambda job, *_: placed(job))
    monkeypatch.setattr(searching, "runtime_of", lambda *_: SimpleNamespace(datasets=()))


def placed(job: JobSpec, share: Share | None = None) -> PlacedJob:
    return PlacedJob(job, JobPlacement("research", share=share or Share()), ())


def session(tmp_path: Path, url: str) -> Any:
    return SimpleNamespace(
        declared_stack=None,
        api=ApiServer(ClusterAccess(kubeconfig_of(url))),
        progress=PlainProgress(StringIO()),
        console=Console(file=StringIO(), width=120),
        is_on_host=True,
        run_root=lambda team, name: tmp_path / team / name,
    )


def write(tmp_path: Path, **changes: Any) -> tuple[Path, Path]:
    """Write the search, and the job that it changes."""
    file, job = tmp_path / "search.yaml", tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(SEARCH | changes))
    job.write_text(yaml.safe_dump(JOB))
    return file, job


def test_each_trial_is_a_job_of_one_process_in_the_teams_queue(
    tmp_path: Path, posted: list[tuple[str, dict[str, Any]]]
) -> None:
    (url, _), sent = posted[0], session(tmp_path, posted[0][0])
    submit_search(sent, *write(tmp_path))
    paths, bodies = zip(*posted[1:], strict=True)
    assert set(paths) == {"/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-research/trainjobs"}
    assert len({body["metadata"]["name"] for body in bodies}) == SEARCH["trials"]
    for body in bodies:
        assert body["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
        trainer = body["spec"]["trainer"]
        assert (trainer["numNodes"], trainer["numProcPerNode"]) == (1, 1)
        assert trainer["command"] == ["python3", "-m", tune.__name__]
        assert trainer["resourcesPerNode"]["limits"] == {"nvidia.com/gpu": "1"}
    assert len({body["metadata"]["labels"][LABEL] for body in bodies}) == 1
    output = sent.console.file.getvalue()
    assert "submitted 3 trials" in output
    assert url not in output


def test_a_trial_has_one_accelerator_with_its_share_and_the_digests_of_its_data() -> None:
    pool = NodePoolSpec.model_validate(
        {"name": "pool", "capacity": "on-demand", "nodes": 1, "machine": "g6.12xlarge", "fabric": "tcp"}
    )
    data = SimpleNamespace(name="pile", path="pile-1", digest="sha256:1")
    search, share = read_search(json.dumps(SEARCH)), share_of_pool(pool)
    job = parse_job({**JOB, "nodes": 1, "gpus": 1, "datasets": ["pile"]})
    body = trial(placed(job, share), search, "run-001", 0, [data])
    trainer = body["spec"]["trainer"]
    one = share.requests(1)
    assert trainer["resourcesPerNode"]["requests"] == {**one, "nvidia.com/gpu": "1"}
    assert json.loads(body["metadata"]["annotations"][ORIGIN])["datasets"] == {"pile": "sha256:1"}
    assert trainer["args"][-1] == "--set=data.path=/mnt/datasets/pile-1"


def test_the_training_package_accepts_the_arguments_of_a_trial(
    tmp_path: Path, posted: list[tuple[str, dict[str, Any]]]
) -> None:
    submit_search(session(tmp_path, posted[0][0]), *write(tmp_path, seed=5))
    text, one, *settings = posted[1][1]["spec"]["trainer"]["args"]
    search = read_search(text)
    assert one == f"--one={posted[1][1]['metadata']['name']}", (
        "a pod that is started again makes no other trial"
    )
    assert str(search.config) == "/opt/trainyard/src/training/configs/digits.yaml"
    assert (search.trials, search.seed, search.search["optim.lr"].log) == (3, 5, True)
    assert settings == [
        "--set=run_dir=/mnt/checkpoints/digits-search/run-001",
        "--set=steps=30",
        "--set=compile=false",
    ]


def test_a_wrong_search_is_refused_with_every_problem_and_nothing_is_submitted(
    tmp_path: Path, posted: list[tuple[str, dict[str, Any]]]
) -> None:
    for changes, message in (
        ({"trials": 0}, "trials: "),
        ({"search": {"optim.rate": {"choices": [1]}}}, "optim.rate: got 1, but there is no such setting"),
    ):
        with pytest.raises(TrainyardError) as caught:
            submit_search(session(tmp_path, posted[0][0]), *write(tmp_path, **changes))
        assert message in caught.value.problems[0].got
    assert posted[1:] == []
