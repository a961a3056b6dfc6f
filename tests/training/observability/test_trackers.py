"""Each tracker gets the same values as metrics.jsonl: Prometheus, TensorBoard, OpenTelemetry, MLflow, W&B.

The tests of OpenTelemetry, MLflow and Weights & Biases are skipped until `make tracking` has installed their
packages; `make training` does.
"""

import gzip
import importlib
import json
import os
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any, ClassVar

import pytest

from engine.paths import REPOSITORY
from tests.processes import TIMEOUT_SECONDS, capture, free_port, wait_for
from tests.servers import QuietHandler, serving
from tests.training.launch import events
from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.config_base import ConfigError


@pytest.fixture(autouse=True)
def long_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the timeout, so that a server has all values when a run ends, however slow this host is."""
    monkeypatch.setattr("trainyard_train.observability.trackers._TIMEOUT_SECONDS", TIMEOUT_SECONDS)


def test_prometheus_gets_the_values_of_the_log(tmp_path: Path) -> None:
    port = free_port()
    train(configure(tmp_path, export={"prometheus_port": port}))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = [text.rpartition(" ") for text in answer.read().decode().splitlines()]
    found = {name: float(value) for name, _, value in lines if not name.startswith("#")}
    last = events(tmp_path, "step")[-1]
    assert found["training_loss"] == last["loss"]
    assert found["training_samples"] == last["samples"] == 2400
    assert found["training_step"] == 24
    assert found['training_events_total{event="step"}'] == 24
    assert found["training_checkpoint_seconds_count"] == len(events(tmp_path, "checkpoint"))


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match=rf"export.prometheus_port: got {port}: .*; choose a free port"):
            train(configure(tmp_path, export={"prometheus_port": port}))


READ = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
board = EventAccumulator(sys.argv[1])
board.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in board.Scalars(tag)] for tag in board.Tags()["scalars"]}))
"""


def pod_environment() -> dict[str, str]:
    """Return variables with which Python finds the packages of the jobs first, as in a pod."""
    folders = (REPOSITORY / "training" / "src", REPOSITORY / ".trainyard" / "training-env")
    return os.environ | {"PYTHONPATH": ":".join(map(str, folders))}


@pytest.mark.ranks
def test_tensorboard_reads_the_values_of_the_log(tmp_path: Path) -> None:
    only_that = pod_environment()
    options = [f"run_dir={tmp_path}", "export.tensorboard=true", "steps=20", "evaluate_every=10"]
    arguments = [part for text in options for part in ("--set", text)]
    subprocess.run([sys.executable, "-m", "trainyard_train.train", *arguments], env=only_that, check=True)
    command = [sys.executable, "-c", READ, str(tmp_path / "tensorboard")]
    out = capture(command, env=only_that, check=True).stdout
    found = json.loads(out)
    assert found["train/loss"] == [
        [line["step"], pytest.approx(line["loss"], rel=1e-6)] for line in events(tmp_path, "step")
    ]
    assert [step for step, _ in found["held out/accuracy"]] == [10, 20]


FULL = """
import errno, sys
from pathlib import Path
from tensorboard.summary.writer.record_writer import RecordWriter
from trainyard_train import train
write, written = RecordWriter.write, []
def almost_full(writer, data):
    written.append(data)
    if 5 < len(written) < 15:
        raise OSError(errno.ENOSPC, "No space left on device")
    write(writer, data)
RecordWriter.write = almost_full
train.main(sys.argv[1:])
"""


@pytest.mark.ranks
def test_a_disk_that_is_full_for_tensorboard_is_reported_once_and_costs_no_step(tmp_path: Path) -> None:
    options = [f"run_dir={tmp_path}", "export.tensorboard=true", "steps=20", "evaluate_every=10"]
    arguments = [part for text in options for part in ("--set", text)]
    done = capture([sys.executable, "-c", FULL, *arguments], env=pod_environment())
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("export.tensorboard: metrics cannot be exported") == 1
    assert "No space left on device" in done.stderr
    assert len(events(tmp_path, "step")) == 20
    assert len(list((tmp_path / "tensorboard").iterdir())) > 1, "it continues once the disk has space"


class Collector(QuietHandler):
    """A fake of OpenTelemetry's collector, which records what it is sent."""

    bodies: ClassVar[list[bytes]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
        self.respond(200)


def test_opentelemetry_is_sent_the_values_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages = pytest.importorskip("opentelemetry.proto.collector.metrics.v1.metrics_service_pb2")
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    with serving(Collector) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        train(configure(tmp_path, export={"opentelemetry": True}))
    sent = messages.ExportMetricsServiceRequest.FromString(Collector.bodies[-1])
    metrics = {
        metric.name: metric for part in sent.resource_metrics[0].scope_metrics for metric in part.metrics
    }
    last = events(tmp_path, "step")[-1]
    assert metrics["training.loss"].gauge.data_points[0].as_double == last["loss"]
    assert metrics["training.step"].gauge.data_points[0].as_int == 24
    saves = metrics["training.checkpoint"].histogram.data_points
    assert sum(point.count for point in saves) == len(events(tmp_path, "checkpoint"))


def test_mlflow_has_one_run_of_all_attempts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlflow").as_uri()
    config = configure(tmp_path / "run", export={"mlflow": uri})
    assert not train(config, NoticeAt(7))
    assert train(config)
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("training").experiment_id])
    assert run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "train/loss")
    logged = [(line["step"], line["loss"]) for line in events(tmp_path / "run", "step")]
    assert sorted((point.step, point.value) for point in history) == sorted(logged)


@pytest.mark.ranks
def test_weights_and_biases_writes_its_files_with_no_network(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    config = configure(tmp_path, export={"wandb": "offline"})
    assert not train(config, NoticeAt(7))
    assert train(config)
    files = list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert len(files) == 2
    assert len({path.stem for path in files}) == 1, "both attempts are of one run"
    # W&B writes them in a separate process, and `finish` does not wait for the last write.
    wait_for(lambda: all(b"train/loss" in path.read_bytes() for path in files))


def test_a_package_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(ConfigError, match=r"export\.mlflow: set, but mlflow is not installed; install"):
        train(configure(tmp_path, export={"mlflow": "http://127.0.0.1:1"}))


def test_a_package_that_conflicts_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class VersionError(Exception):
        """The error that protobuf raises."""

    def refuse(name: str) -> object:
        if name == "torch.utils.tensorboard":
            raise VersionError("gencode 6.31.1 runtime 5.29.6")
        return real(name)

    real = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", refuse)
    with pytest.raises(ConfigError, match=r"export\.tensorboard: set, but .* gencode 6.*; put the packages"):
        train(configure(tmp_path, export={"tensorboard": True}))
    assert not events(tmp_path, "started")


def test_a_sink_of_this_process_that_fails_is_reported_once_and_costs_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(line: dict[str, Any]) -> None:
        raise OSError("no room")

    monkeypatch.setattr("trainyard_train.observability.trackers._Prometheus", lambda port: fail)
    assert train(configure(tmp_path, export={"prometheus_port": 9}))
    assert capsys.readouterr().err.count("export.prometheus_port: metrics cannot be exported: no room") == 1
