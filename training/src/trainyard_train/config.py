"""`TrainConfig`: the configuration of a run, loaded from YAML with overrides and validated as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from trainyard_train.checkpointing.config import CheckpointConfig
from trainyard_train.config_base import ConfigError, ConfigSection, extra, validated
from trainyard_train.data.config import DataConfig
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.models.config import ModelConfig
from trainyard_train.observability.trackers import ExportConfig
from trainyard_train.optim.schedule import OptimConfig
from trainyard_train.parallelism.config import Backend, ParallelConfig, Precision, Strategy


class TrainConfig(ConfigSection):
    """A whole run. `steps` counts optimizer steps of all ranks together."""

    run_dir: Path
    """Folder that all ranks share: metrics, checkpoints, final.json."""
    steps: int = Field(default=200, ge=1)
    seed: int = Field(default=0, ge=0, lt=1 << 32)
    strategy: Strategy = "ddp"
    """`ddp`: the whole model on every rank. `fsdp`: sharded over the ranks, for models too large for one."""
    parallel: ParallelConfig = ParallelConfig()
    backend: Backend = "auto"
    """Backend of the collectives. `auto`: NCCL (RCCL with ROCm) where there is a GPU, else gloo."""
    precision: Precision = "float32"
    """Precision of the forward pass, where it is safe (autocast); weights and optimizer are in float32."""
    accumulate: int = Field(default=1, ge=1)
    """Micro-batches that a step's samples of each rank are divided into, to save memory."""
    recompute: bool = False
    """Whether activations inside of layers are recomputed in the backward pass, to save memory."""
    deterministic: bool = True
    """Whether only algorithms are used that compute the same bits from the same input; others fail. Without
    them, a resumed run may end with other weights than an uninterrupted one."""
    compile: bool = False
    """Whether torch.compile compiles the layers, which takes minutes at each start."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    optim: OptimConfig = OptimConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    timeouts: TimeoutConfig = TimeoutConfig()
    export: ExportConfig = ExportConfig()
    notices: Literal["none", "aws", "gcp", "azure"] = "none"
    """Cloud whose metadata service is asked for preemption notices; SIGTERM counts as one in any case."""
    evaluate_every: int = Field(default=50, ge=1)
    """Steps between two evaluations on the held-out data."""
    evaluate_samples: int = Field(default=4096, ge=1)
    """Maximum number of held-out samples in one evaluation."""
    threads: int = Field(default=1, ge=1)
    """CPU threads per process."""
    restarts: int = Field(default=3, ge=0)
    """Maximum number of in-place restarts of a node's ranks after a failure here or on a peer; then the node
    exits, and its launcher decides (see `elasticity.agent`)."""
    pace_seconds: float = Field(default=0, ge=0, le=60)
    """Minimum seconds of a step; the run sleeps for the rest. Slows a small job down, so that a demonstration
    can interrupt it; 0 for real work."""

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
        wanted = "text" if self.model.name == "gpt" else "digits"
        if self.data.name != wanted:
            problems.append(
                f"data.name: got {self.data.name!r} with model {self.model.name}; allowed: {wanted}"
            )
        if (self.data.name == "digits") == bool(self.data.path):
            got = f"{self.data.path!r} with data.name {self.data.name}"
            problems.append(f"data.path: got {got}; allowed: none with digits, a path with text")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def identity(self) -> dict[str, Any]:
        """Values that must be equal for another run to resume a checkpoint, besides the data."""
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
    values = _read(_file_of(path), problems) if path else {}
    for override in overrides:
        _apply(values, override, problems)
    if problems:
        raise ConfigError(problems)
    return parse_config(values)


def parse_config(values: Mapping[str, Any]) -> TrainConfig:
    """Check plain values. Raises ConfigError: with every problem at once."""
    return validated(TrainConfig, values)


def parse_yaml(text: str) -> Any:  # noqa: ANN401 -- whatever it says
    """Parse a text.

    Raises:
        ValueError: it is not YAML.
        ConfigError: PyYAML is not installed.
    """
    with extra("cli"):
        import yaml
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def _file_of(config: Path) -> Path:
    """Return a configuration's file; one of those beside the package may be given by its name, `digits`."""
    package = Path(__file__).parent
    beside = (
        package.parent / "training" / "configs",
        package.parents[1] / "configs",
    )  # an image's, a clone's
    named = [folder / f"{config}.yaml" for folder in beside] if config.name == str(config) else []
    return next((file for file in named if file.is_file()), config)


def _read(path: Path, problems: list[str]) -> dict[str, Any]:
    try:
        values = parse_yaml(path.read_text())
    except (OSError, ValueError) as error:  # YAML has no date such as 2026-02-30
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
        if values.get(parent) is None:  # YAML parses an empty section as None
            values[parent] = {}
        values = values[parent]
        if not isinstance(values, dict):
            problems.append(f"--set {override}: {parent} is a value, not a section; set it as a whole")
            return
    try:
        values[leaf] = parse_yaml(text)
    except ValueError as error:
        problems.append(f"--set {override}: the value is not YAML: {error}")
