"""Settings of the export of metrics to trackers: the section `export` of a run's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from trainyard_train.config_base import ConfigSection


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
