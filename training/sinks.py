"""Where else the metrics of a run go: Prometheus, which asks for them, and TensorBoard's files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from training.config import ExportConfig
from training.metrics import Listener

_GAUGES: Final = {
    "loss": "mean loss of the last step in nats",
    "accuracy": "part of the last step's targets that were hit",
    "lr": "learning rate",
    "samples": "samples consumed",
    "samples_per_second": "of all ranks",
}


def open_sinks(config: ExportConfig, run_dir: Path) -> list[Listener]:
    """Those that the configuration asks for; what they need is imported only then.

    Raises:
        OSError: the port is taken.
        ImportError: a package is not installed.
    """
    sinks: list[Listener] = []
    if config.prometheus_port:
        sinks.append(_prometheus(config.prometheus_port))
    if config.tensorboard:
        sinks.append(_tensorboard(run_dir / "tensorboard"))
    return sinks


def _prometheus(port: int) -> Listener:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

    registry = CollectorRegistry()
    gauges = {name: Gauge(f"training_{name}", text, registry=registry) for name, text in _GAUGES.items()}
    step = Gauge("training_step", "optimizer steps taken", registry=registry)
    events = Counter("training_events", "by name, as in metrics.jsonl", ["event"], registry=registry)
    saves = Histogram("training_checkpoint_seconds", "until a checkpoint was durable", registry=registry)
    blocked = Counter("training_blocked_seconds", "training stood still for a copy", registry=registry)
    try:
        start_http_server(port, registry=registry)
    except OSError as error:
        raise OSError(f"export.prometheus_port: got {port}: {error.strerror}; choose a free port") from None

    def sink(line: dict[str, Any]) -> None:
        events.labels(line["event"]).inc()
        step.set(line["step"])
        if line["event"] == "step":
            for name, gauge in gauges.items():
                gauge.set(line[name])
        elif line["event"] == "checkpoint":
            saves.observe(line["seconds"])
            blocked.inc(line["blocked_seconds"])

    return sink


def _tensorboard(folder: Path) -> Listener:
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder))

    def sink(line: dict[str, Any]) -> None:
        kind = {"step": "train", "evaluation": "held out", "checkpoint": "checkpoint"}.get(line["event"])
        if kind is None:
            writer.add_text("events", f"{line['event']} (attempt {line['attempt']})", line["step"])
            writer.flush()
            return
        for name, value in line.items():
            if isinstance(value, float) and name != "time":
                writer.add_scalar(f"{kind}/{name}", value, line["step"], line["time"])

    return sink
