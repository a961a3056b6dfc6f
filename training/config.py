"""The configuration of a run: typed, frozen, and checked before anything is started."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

Strategy = Literal["ddp", "fsdp"]
Precision = Literal["float32", "bfloat16", "float16"]
Backend = Literal["auto", "nccl", "gloo", "mpi"]


class ConfigError(ValueError):
    """Every problem of a configuration, each with its path, what was found and what is allowed."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class ModelConfig(_Part):
    """Which network to train."""

    name: Literal["mlp", "convnet", "gpt", "resnet"] = "mlp"
    hidden: int = Field(default=64, ge=1, le=65536)
    """Width, or channels of the first layer."""
    depth: Literal[18, 34, 50, 101] = 50
    """Layers of a resnet."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    layers: int = Field(default=4, ge=1)
    """Blocks of a gpt."""
    heads: int = Field(default=4, ge=1)
    """Of a gpt's attention."""
    context: int = Field(default=128, ge=1)
    """Tokens that a gpt sees at once."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> ModelConfig:
        if self.name == "gpt" and self.hidden % self.heads:
            raise ValueError(
                f"model.heads: got {self.heads}; allowed: a divisor of model.hidden ({self.hidden})"
            )
        return self


class DataConfig(_Part):
    """What to train on, and how much of it at once."""

    name: Literal["digits", "text", "pictures"] = "digits"
    """`digits`: 1797 handwritten ones, which come with scikit-learn. `text`: shards made by training.text.
    `pictures`: a folder for each class, or shards of WebDataset (see `training.pictures`)."""
    path: str = ""
    """Of text and pictures: their folder, or its URL in an object store."""
    held_out_path: str = ""
    """Of pictures: those kept for evaluation; empty: a part of those at `path`."""
    side: int = Field(default=224, ge=8, le=4096)
    """Of a picture in pixels, after it was cropped."""
    workers: int = Field(default=2, ge=1, le=256)
    """Threads that decode pictures."""
    batch_size_per_rank: int = Field(default=32, ge=1, le=1 << 20)
    """Samples per rank in one step."""
    held_out: float = Field(default=0.2, gt=0, lt=1)
    """Part of the data that is kept for evaluation."""


class OptimConfig(_Part):
    """The optimizer and how its rate follows the size of the batch (see `training.optim`)."""

    name: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(default=0.05, gt=0)
    """The rate at `reference_batch_size`."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    scaling: Literal["linear", "sqrt", "none"] = "none"
    reference_batch_size: int = Field(default=64, ge=1)
    """The batch that `lr` was tuned with, in samples."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate climbs from `lr` to its scaled value; with no scaling from near 0 to `lr`."""

    @model_validator(mode="after")
    def _adam_does_not_scale_linearly(self) -> OptimConfig:
        if self.name == "adamw" and self.scaling == "linear":
            raise ValueError(
                "optim.scaling: got 'linear' with adamw; it holds for sgd; with adamw use sqrt or none"
            )
        return self


class ParallelConfig(_Part):
    """How the ranks are arranged. What `tensor` and `pipeline` leave is for data: parts of the batch."""

    tensor: int = Field(default=1, ge=1)
    """Ranks that compute each layer together."""
    pipeline: int = Field(default=1, ge=1)
    """Stages that the layers are divided into; micro-batches (`accumulate`) flow through them."""
    shard: int = Field(default=0, ge=0)
    """With fsdp: how many ranks share one copy of the weights; copies are kept by the rest (HSDP). 0: all."""
    min_ranks: int = Field(default=1, ge=1)
    """With fewer ranks a run does not begin, nor go on."""
    max_ranks: int = Field(default=0, ge=0)
    """Nor with more; 0: any number."""

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> ParallelConfig:
        if 0 < self.max_ranks < self.min_ranks:
            raise ValueError(
                f"parallel.max_ranks: got {self.max_ranks};"
                f" allowed: parallel.min_ranks ({self.min_ranks}) or more, or 0"
            )
        return self

    def check(self, ranks: int) -> None:
        """See to it that there are as many ranks as there may be.

        Raises:
            ConfigError: there are too few or too many.
        """
        if ranks < self.min_ranks or 0 < self.max_ranks < ranks:
            most = f"to {self.max_ranks}" if self.max_ranks else "or more"
            problem = (
                f"parallel: got {ranks} ranks; allowed: {self.min_ranks} {most}; start so many,"
                " or change parallel.min_ranks and .max_ranks; what was saved stays"
            )
            raise ConfigError([problem])


class CheckpointConfig(_Part):
    """When to save and how much to keep."""

    every_steps: int = Field(default=20, ge=0)
    """Steps from one to the next; 0: as often as pays (see `training.interval`)."""
    mtbf_seconds: float = Field(default=86400, gt=0)
    """With every_steps 0: the mean time between losses of a run that is expected, until some were seen."""
    keep_last: int = Field(default=3, ge=1)
    """How many of the newest stay."""
    keep_every: int = Field(default=0, ge=0)
    """Those whose step is a multiple of this stay for good; 0: none."""
    superseded: Literal["delete", "tag"] = "delete"
    """What becomes of the others. `tag`: objects in S3 and Azure get `trainyard.dev/superseded=true`, those
    in Google Cloud Storage a custom time, by which a rule of the bucket deletes them later."""
    store: str = ""
    """URL of a folder in an object store, such as `s3://bucket/runs/7`; empty: `checkpoints` in run_dir."""

    @field_validator("store")
    @classmethod
    def _store_is_a_url(cls, url: str) -> str:
        if url and not re.fullmatch(r"[a-z][a-z0-9+]*://[^/]+(/.*)?", url):
            raise ValueError("allowed: a URL such as s3://bucket/runs/7; leave it out to use run_dir")
        return url

    @model_validator(mode="after")
    def _marks_are_of_clouds(self) -> CheckpointConfig:
        if self.superseded == "tag" and not self.store.startswith(("s3://", "gs://", "az://")):
            raise ValueError(
                "checkpoint.superseded: got 'tag'; allowed: with checkpoint.store in S3 (s3://…),"
                " Google Cloud Storage (gs://…) or Azure (az://…)"
            )
        return self


class ExportConfig(_Part):
    """Where else metrics go, besides metrics.jsonl; rank 0 sends them."""

    prometheus_port: int = Field(default=0, ge=0, lt=1 << 16)
    """Port at which Prometheus may ask for them; 0: none."""
    tensorboard: bool = False
    """Write `run_dir/tensorboard`."""
    opentelemetry: bool = False
    """Send them by OTLP over HTTP to where `OTEL_EXPORTER_OTLP_ENDPOINT` says, once a minute."""
    mlflow: str = ""
    """URI of the tracking server, or of a database (`sqlite:////…`); empty: none."""
    wandb: Literal["none", "offline", "online"] = "none"
    """Weights & Biases: `offline` writes `run_dir/wandb`, for `wandb sync`; `online` needs WANDB_API_KEY."""


class TimeoutConfig(_Part):
    """How long to wait for others, in seconds."""

    rendezvous: float = Field(default=300, gt=0)
    """For all ranks to arrive."""
    rejoin: float = Field(default=3, gt=0)
    """For all ranks to arrive again, after they were started again in place; more only delays their start
    elsewhere, where a node is lost."""
    collective: float = Field(default=20, gt=0)
    """For one collective; longer than the slowest step."""
    silence: float = Field(default=8, ge=3)
    """Without a sign of life from a rank, until it counts as gone."""
    stall: float = Field(default=15, gt=0)
    """In one step, until all ranks write down what they are doing; shorter than `collective`. Left out, it is
    no more than three quarters of that."""
    store: float = Field(default=60, gt=0)
    """For one request to an object store, with its retries."""
    save: float = Field(default=600, gt=0)
    """For one checkpoint to become durable, until the run ends rather than wait for it."""
    leave: float = Field(default=10, gt=0)
    """From a notice to the exit, come what may."""

    @model_validator(mode="before")
    @classmethod
    def _stall_follows_collective(cls, values: Any) -> Any:  # noqa: ANN401 (whatever was given)
        """Who shortens `collective` alone has stacks written before it ends, too."""
        collective = values.get("collective") if isinstance(values, dict) else None
        if not isinstance(collective, int | float) or "stall" in values:
            return values
        shorter = 0.75 * collective
        return {**values, "stall": shorter} if 0 < shorter < cls.model_fields["stall"].default else values

    @model_validator(mode="after")
    def _stacks_come_before_the_end(self) -> TimeoutConfig:
        if self.stall >= self.collective:
            raise ValueError(
                f"timeouts.stall: got {self.stall:g}; allowed: less than timeouts.collective"
                f" ({self.collective:g}), after which the ranks leave; lower it, or raise timeouts.collective"
            )
        return self


class TrainConfig(_Part):
    """A whole run. `steps` counts optimizer steps of all ranks together."""

    run_dir: Path
    """Folder that all ranks share: metrics, checkpoints, final.json."""
    steps: int = Field(default=200, ge=1)
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    strategy: Strategy = "ddp"
    """`ddp`: the model whole on every rank. `fsdp`: cut over the ranks, for models too large for one."""
    parallel: ParallelConfig = ParallelConfig()
    backend: Backend = "auto"
    """What carries collectives. `auto`: NCCL (RCCL with ROCm) where there is a GPU, else gloo. `mpi`: under
    mpirun, with a PyTorch that was built with MPI, which its wheels are not."""
    precision: Precision = "float32"
    """Of the forward pass, where it is safe (autocast); weights and optimizer stay in float32."""
    accumulate: int = Field(default=1, ge=1)
    """Micro-batches that a step's samples of each rank are divided into, to save memory."""
    recompute: bool = False
    """Keep no activations inside of layers, and compute them again in the backward pass, to save memory."""
    compile: bool = False
    """Compile the layers with torch.compile; it takes minutes at each start."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    optim: OptimConfig = OptimConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    timeouts: TimeoutConfig = TimeoutConfig()
    export: ExportConfig = ExportConfig()
    notices: Literal["none", "aws", "gcp", "azure"] = "none"
    """Whose metadata service to ask if this machine will be taken away; SIGTERM is heard in any case."""
    evaluate_every: int = Field(default=50, ge=1)
    """Steps between two looks at the held-out data."""
    evaluate_samples: int = Field(default=4096, ge=1)
    """How much of it is looked at."""
    threads: int = Field(default=1, ge=1)
    """CPU threads per process."""
    restarts: int = Field(default=3, ge=0)
    """How often a node starts its ranks again in place, after one died or lost another, until it ends and
    whoever started it decides (see `training.agent`)."""
    pace_seconds: float = Field(default=0, ge=0, le=60)
    """Least time that a step takes: the rest is slept. It slows a small job down so that a demonstration has
    something to interrupt; leave it at 0 for real work."""

    @model_validator(mode="after")
    def _parts_fit_together(self) -> TrainConfig:
        problems = []
        per_rank, parallel = self.data.batch_size_per_rank, self.parallel
        if per_rank % self.accumulate:
            problems.append(
                f"accumulate: got {self.accumulate};"
                f" allowed: a divisor of data.batch_size_per_rank ({per_rank})"
            )
        if parallel.shard and self.strategy != "fsdp":
            problems.append("parallel.shard: set with strategy ddp; allowed: with fsdp only")
        if parallel.pipeline > 1 and self.strategy == "fsdp":
            problems.append("parallel.pipeline: set with strategy fsdp; allowed: with ddp, or set it to 1")
        if parallel.tensor > 1 and self.model.name in {"convnet", "resnet"}:
            problems.append(f"parallel.tensor: set with model {self.model.name}; allowed: with mlp, gpt")
        if self.model.name == "gpt" and self.model.heads % parallel.tensor:
            allowed = f"a divisor of model.heads ({self.model.heads})"
            problems.append(f"parallel.tensor: got {parallel.tensor}; allowed: {allowed}")
        wanted = {"gpt": "text", "resnet": "pictures"}.get(self.model.name, "digits")
        if self.data.name != wanted:
            problems.append(
                f"data.name: got {self.data.name!r} with model {self.model.name}; allowed: {wanted}"
            )
        if (self.data.name == "digits") == bool(self.data.path):
            problems.append(f"data.path: got {self.data.path!r}; digits have none, all else needs it")
        if self.data.held_out_path and self.data.name != "pictures":
            problems.append(f"data.held_out_path: set with data {self.data.name}; allowed: with pictures")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """What must stay the same for a checkpoint of one run to be resumed by another, besides the data."""
        return {
            "seed": self.seed,
            "model": self.model.model_dump(),
            "data": {"name": self.data.name, "held_out": self.data.held_out},
            "optim": {"name": self.optim.name},
        }


def load_config(path: Path | None, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a YAML file, apply `key.sub=value` overrides (values are YAML too), and check the whole.

    Raises:
        ConfigError: with every problem at once; nothing has been started.
    """
    problems: list[str] = []
    values = _read(path, problems) if path else {}
    for override in overrides:
        _apply(values, override, problems)
    if problems:
        raise ConfigError(problems)
    return parse_config(values)


def parse_config(values: Mapping[str, Any]) -> TrainConfig:
    """Check plain values.

    Raises:
        ConfigError: with every problem at once.
    """
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(problems_of(error)) from None


def problems_of(error: ValidationError) -> list[str]:
    """Each with its path, what was found and what is allowed."""
    return [line for detail in error.errors() for line in _lines(detail)]


def _read(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        problems.append(f"{path}: cannot be read as YAML: {error}")
        return {}
    if values is None:
        return {}
    if not isinstance(values, dict):
        problems.append(f"{path}: got {type(values).__name__}, allowed: a mapping of settings")
        return {}
    return values


def _apply(values: dict[str, Any], override: str, problems: list[str]) -> None:
    key, separator, text = override.partition("=")
    if not separator or not key:
        problems.append(f"--set {override}: allowed: key=value, such as model.hidden=128")
        return
    *parents, leaf = key.split(".")
    for parent in parents:
        child = values.setdefault(parent, {})
        if not isinstance(child, dict):
            problems.append(f"--set {override}: {parent} is a value and has no parts")
            return
        values = child
    try:
        values[leaf] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        problems.append(f"--set {override}: the value is not YAML: {error}")


def _lines(detail: Mapping[str, Any]) -> list[str]:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return [f"{where}: missing; add it to the file or with --set {where}=…"]
    if detail["type"] == "extra_forbidden":
        return [f"{where}: got {detail['input']!r}, but there is no such setting"]
    reason = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "value_error" and isinstance(detail["input"], dict):  # it names what it found itself
        return reason.splitlines()
    return [f"{where}: got {detail['input']!r}: {reason}"]
