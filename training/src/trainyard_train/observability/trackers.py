"""Exports a run's metrics to Prometheus, TensorBoard, OpenTelemetry, MLflow and Weights & Biases, by the
section `export` of its configuration. Errors of a tracker after its start are logged once, and do not stop
the run. A terminal gets a progress bar.
"""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from queue import Queue
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final, Literal, TextIO

from pydantic import Field

from trainyard_train.config_base import ConfigError, ConfigSection, extra
from trainyard_train.observability.metrics import Listener
from trainyard_train.observability.rank_log import log_line

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_GAUGES: Final = {
    "loss": "mean loss of the last step in nats",
    "accuracy": "part of the last step's targets that were hit",
    "lr": "learning rate",
    "samples": "samples consumed",
    "samples_per_second": "of all ranks",
}
_LAST: Final = frozenset({"finished", "preempted", "failed"})
_TIMEOUT_SECONDS: Final = 5.0
"""Seconds to finish pending exports when the process ends."""
_FOLDER: Final = "training.run_dir"


class ExportConfig(ConfigSection):
    """Where else metrics go, besides metrics.jsonl; rank 0 sends them."""

    prometheus_port: int = Field(default=0, ge=0, lt=1 << 16)
    """Port at which Prometheus scrapes the metrics; 0: none."""
    tensorboard: bool = False
    """Whether metrics are written to `run_dir/tensorboard`."""
    opentelemetry: bool = False
    """Whether metrics are sent by OTLP over HTTP to `OTEL_EXPORTER_OTLP_ENDPOINT`, once a minute."""
    mlflow: str = ""
    """URI of an MLflow tracking server, or of a database (`sqlite:////…`); empty: none."""
    wandb: Literal["none", "offline", "online"] = "none"
    """Weights & Biases: `offline` writes `run_dir/wandb`, for `wandb sync`; `online` needs WANDB_API_KEY."""


def bar(terminal: TextIO) -> Listener:
    """Return a listener that draws a run's steps, last loss, held-out accuracy and last saved step."""
    with extra("cli"):
        from tqdm import tqdm  # type: ignore[import-untyped]

    tqdm.monitor_interval = 0  # disables the thread that redraws an idle bar
    drawn: tqdm[Any] | None = None
    words = {"loss": "", "held out": "", "saved": ""}  # in this order, whichever is known first

    def show(line: dict[str, Any]) -> None:
        nonlocal drawn
        event = line["event"]
        if event in {"started", "resumed"}:
            drawn = tqdm(
                total=line["steps"], initial=line["step"], file=terminal, unit=" steps", dynamic_ncols=True
            )
        if drawn is None:
            return
        if event == "step":
            words["loss"] = f"loss {line['loss']:.4f}"
            drawn.set_postfix_str(", ".join(filter(None, words.values())), refresh=False)
            drawn.update(line["step"] - drawn.n)
        elif event == "evaluation":
            words["held out"] = f"held out {line['accuracy']:.1%}"
        elif event == "checkpoint":
            words["saved"] = f"saved {line['step']}"
        elif event in _LAST:
            drawn.set_postfix_str(", ".join(filter(None, words.values())))
            drawn.close()

    return show


def open_sinks(config: ExportConfig, run_dir: Path) -> list[Listener]:
    """Open the sinks that the configuration asks for; their packages are imported only then.

    Raises:
        OSError: the port is taken.
        ConfigError: a package is not installed, or does not go with the others.
    """
    sinks: list[Listener] = []
    if config.prometheus_port:
        _require("prometheus_port", "prometheus_client", "monitoring")
        sinks.append(Guarded("export.prometheus_port", _Prometheus(config.prometheus_port)))
    if config.tensorboard:
        _require("tensorboard", "torch.utils.tensorboard", "monitoring")
        sinks.append(_InBackground("tensorboard", _tensorboard(run_dir / "tensorboard")))
    if config.opentelemetry:
        _require("opentelemetry", "opentelemetry.exporter.otlp.proto.http.metric_exporter", "tracking")
        sinks.append(_InBackground("opentelemetry", _opentelemetry(run_dir)))
    if config.mlflow:
        _require("mlflow", "mlflow", "tracking")
        sinks.append(_InBackground("mlflow", _mlflow(config.mlflow, run_dir)))
    if config.wandb != "none":
        _require("wandb", "wandb", "tracking")
        sinks.append(_InBackground("wandb", _wandb(config.wandb, run_dir)))
    return sinks


class Guarded:
    """A sink whose failure loses metrics but no step; it is reported once."""

    def __init__(self, name: str, sink: Listener) -> None:
        self._name, self._sink, self._silenced = name, sink, False

    def __call__(self, line: dict[str, Any]) -> None:
        try:
            self._sink(line)
        except Exception as error:
            if not self._silenced:
                log_line(f"{self._name}: metrics cannot be exported: {error}")
            self._silenced = True

    def close(self) -> None:
        """Close the sink."""
        if close := getattr(self._sink, "close", None):
            close()


def _require(name: str, module: str, of: str) -> None:
    """Import the module of a setting, which an extra has."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        problem = (
            f"export.{name}: set, but {error.name} is not installed; install trainyard-train[{of}],"
            " or remove the setting"
        )
        raise ConfigError([problem]) from None
    except Exception as error:  # protobuf has a separate error class
        problem = (
            f"export.{name}: set, but {module} cannot be imported: {error}; put the packages of"
            " requirements/training.txt first in PYTHONPATH, as in a job's pod (PYTHONPATH="
            ".trainyard/training-env in a clone), or remove the setting"
        )
        raise ConfigError([problem]) from None


class _Prometheus:
    """Answers Prometheus until it is closed."""

    def __init__(self, port: int) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

        registry = CollectorRegistry()
        self._gauges = {
            name: Gauge(f"training_{name}", text, registry=registry) for name, text in _GAUGES.items()
        }
        self._step = Gauge("training_step", "optimizer steps taken", registry=registry)
        self._events = Counter(
            "training_events", "events by name, as in metrics.jsonl", ["event"], registry=registry
        )
        self._saves = Histogram(
            "training_checkpoint_seconds", "seconds until a checkpoint was durable", registry=registry
        )
        self._blocked = Counter(
            "training_blocked_seconds", "seconds that training waited for a copy", registry=registry
        )
        try:
            self._server, self._thread = start_http_server(port, registry=registry)
        except OSError as error:
            raise OSError(
                f"export.prometheus_port: got {port}: {error.strerror}; choose a free port"
            ) from None

    def __call__(self, line: dict[str, Any]) -> None:
        self._events.labels(line["event"]).inc()
        self._step.set(line["step"])
        if line["event"] == "step":
            for name, gauge in self._gauges.items():
                gauge.set(line[name])
        elif line["event"] == "checkpoint":
            self._saves.observe(line["seconds"])
            self._blocked.inc(line["blocked_seconds"])

    def close(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _tensorboard(folder: Path) -> Listener:
    """Files in a folder; one that cannot be written any more is followed by another."""
    writer: SummaryWriter | None = None

    def sink(line: dict[str, Any]) -> None:
        nonlocal writer
        from torch.utils.tensorboard import SummaryWriter

        numbers = _numbers(line)
        try:
            writer = writer or SummaryWriter(str(folder))
            for name, value in numbers.items():
                writer.add_scalar(name, value, line["step"], line["time"])
            if not numbers:
                writer.add_text("events", f"{line['event']} (attempt {line['attempt']})", line["step"])
                writer.flush()
        except Exception:
            writer = None  # the writer's thread has ended
            raise

    return sink


def _opentelemetry(run_dir: Path) -> Listener:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    reader = PeriodicExportingMetricReader(OTLPMetricExporter())  # sends to OTEL_EXPORTER_OTLP_ENDPOINT
    resource = Resource.create({"service.name": "training", "training.run_dir": str(run_dir)})
    provider = MeterProvider([reader], resource)
    meter = provider.get_meter("training")
    gauges = {
        name: meter.create_gauge(f"training.{name}", description=text) for name, text in _GAUGES.items()
    }
    step = meter.create_gauge("training.step", description="optimizer steps taken")
    events = meter.create_counter("training.events", description="events by name, as in metrics.jsonl")
    saves = meter.create_histogram("training.checkpoint", "s", "seconds until a checkpoint was durable")

    def sink(line: dict[str, Any]) -> None:
        events.add(1, {"event": line["event"]})
        step.set(line["step"])
        if line["event"] == "step":
            for name, gauge in gauges.items():
                gauge.set(line[name])
        elif line["event"] == "checkpoint":
            saves.record(line["seconds"], {"reason": line["reason"]})
        if line["event"] in _LAST:
            provider.shutdown(int(_TIMEOUT_SECONDS * 1000))  # sends the rest

    return sink


def _mlflow(uri: str, run_dir: Path) -> Listener:
    """One run of MLflow for all attempts, found again by the run's folder."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("training")
    number = experiment.experiment_id if experiment else client.create_experiment("training")
    found = client.search_runs([number], f"tags.`{_FOLDER}` = '{run_dir}'")
    run = (
        found[0] if found else client.create_run(number, run_name=run_dir.name, tags={_FOLDER: str(run_dir)})
    )
    status = {"finished": "FINISHED", "preempted": "SCHEDULED", "failed": "FAILED"}
    if found:
        client.update_run(run.info.run_id, "RUNNING")

    def sink(line: dict[str, Any]) -> None:
        moment = int(line["time"] * 1000)
        metrics = [
            Metric(name.replace(" ", "_"), value, moment, line["step"])
            for name, value in _numbers(line).items()
        ]
        if metrics:
            client.log_batch(run.info.run_id, metrics)
        if line["event"] in _LAST:
            client.set_terminated(run.info.run_id, status[line["event"]])

    return sink


def _wandb(mode: Literal["offline", "online"], run_dir: Path) -> Listener:
    """One run of Weights & Biases for all attempts; offline, its files are below `run_dir/wandb`."""
    import wandb

    number = hashlib.sha256(str(run_dir).encode()).hexdigest()[:16]
    run = wandb.init(
        project="training", name=run_dir.name, id=number, resume="allow", dir=str(run_dir), mode=mode
    )
    run.define_metric("*", step_metric="step")  # our step may decrease after a kill; wandb's may not

    def sink(line: dict[str, Any]) -> None:
        if numbers := _numbers(line):
            run.log({**numbers, "step": line["step"]})
        if line["event"] in _LAST:
            run.finish(0 if line["event"] == "finished" else 1)

    return sink


def _numbers(line: dict[str, Any]) -> dict[str, float]:
    """Numeric values of a line, with names such as `train/loss`."""
    kind = {"step": "train", "evaluation": "held out", "checkpoint": "checkpoint"}.get(line["event"])
    if kind is None:
        return {}
    return {
        f"{kind}/{key}": value for key, value in line.items() if isinstance(value, float) and key != "time"
    }


class _InBackground:
    """A sink that waits for a server or a disk, in a separate thread until it is closed."""

    def __init__(self, name: str, sink: Listener) -> None:
        self._lines: Queue[tuple[dict[str, Any], Event] | None] = Queue()
        self._sink = Guarded(f"export.{name}", sink)
        Thread(target=self._work, name=name, daemon=True).start()

    def __call__(self, line: dict[str, Any]) -> None:
        done = Event()
        self._lines.put((line, done))
        if line["event"] in _LAST:  # after which the process ends
            done.wait(_TIMEOUT_SECONDS)

    def close(self) -> None:
        """End the thread once its queue is empty."""
        self._lines.put(None)

    def _work(self) -> None:
        while given := self._lines.get():
            line, done = given
            self._sink(line)
            done.set()
        self._sink.close()
