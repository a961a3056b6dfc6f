"""A run of two attempts logs to a real MLflow server; the test reads it back by the REST API."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.processes import TIMEOUT_SECONDS, free_port, wait_for
from tests.training.foreign.forks import Forks
from tests.training.foreign.programs import environment

ATTEMPTS = """
import sys
from pathlib import Path
from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.observability import trackers

trackers._TIMEOUT_SECONDS = float(sys.argv[3])
config = configure(Path(sys.argv[2]), export={"mlflow": sys.argv[1]})
assert not train(config, NoticeAt(7))
assert train(config)
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Start a server; yields its address."""
    port = free_port()
    store = ("--backend-store-uri", f"sqlite:///{tmp_path}/mlflow.db", "--workers", "1")
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), *store]
    log = tmp_path / "server.log"
    with (
        log.open("ab") as output,
        subprocess.Popen(
            command, cwd=tmp_path, env=environment(tmp_path), stdout=output, stderr=output
        ) as process,
    ):
        address = f"http://127.0.0.1:{port}"
        try:
            wait_for(lambda: _serves(address))
            yield address
        finally:
            process.terminate()


def _serves(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/health", timeout=5):
            return True
    except OSError:
        return False


def ask(address: str, path: str, **query: Any) -> Any:
    request = urllib.request.Request(
        f"{address}/api/2.0/mlflow/{path}",
        json.dumps(query).encode() if query else None,
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        return json.load(answer)


@pytest.mark.soak
@pytest.mark.ranks
def test_a_server_has_one_run_with_each_step_once(tmp_path: Path, server: str, forks: Forks) -> None:
    program, log = tmp_path / "program.py", tmp_path / "log"
    program.write_text(ATTEMPTS)
    run = tmp_path / "run"
    arguments = [server, str(run), str(TIMEOUT_SECONDS)]
    assert forks.start(program, arguments, log).wait(TIMEOUT_SECONDS) == 0, log.read_text()
    experiment = ask(server, "experiments/get-by-name?experiment_name=training")["experiment"]
    [found] = ask(server, "runs/search", experiment_ids=[experiment["experiment_id"]])["runs"]
    assert found["info"]["status"] == "FINISHED"
    history = ask(
        server, f"metrics/get-history?run_id={found['info']['run_id']}&metric_key=train/loss&max_results=100"
    )
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    logged = [(line["step"], line["loss"]) for line in lines if line["event"] == "step"]
    assert sorted((int(point["step"]), point["value"]) for point in history["metrics"]) == sorted(logged)
