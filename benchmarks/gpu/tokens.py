"""GPU benchmark: time per token and MFU of training a GPT on one GPU, compiled and not, against plain
PyTorch.

Both arms have the same model, data and optimizer, and their losses in the first 20 steps must agree. Ours
trains as `trainyard_train.train` does: with deterministic algorithms, and with the metrics of each step
aggregated over all ranks. The peer is the loop of PyTorch's tutorial, which reads its loss in those first
steps only.

Without a GPU a tiny model is trained on the CPU, which shows only that both arms run and have the same
losses.
"""

from __future__ import annotations

import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from benchmarks.figures import Figure, Repeats, alternating
from benchmarks.gpu import hardware
from trainyard_train.config import TrainConfig, parse_config
from trainyard_train.data.datasets import load_dataset
from trainyard_train.data.loader import GlobalOrder
from trainyard_train.data.text import write_tokens
from trainyard_train.elasticity import startup
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.launchers import process_group
from trainyard_train.models.build import build_model
from trainyard_train.models.config import ModelConfig
from trainyard_train.observability.device import peak_of
from trainyard_train.trainer import Trainer

END, VOCABULARY = 256, 257
"""Token that ends a document, and the number of tokens: bytes, and this one."""
COMPARED = 20
"""Steps whose losses are compared before any time is taken."""
Block = Callable[[], float]
"""Takes some steps and returns the seconds that they took."""


@dataclass(frozen=True)
class TokensSize:
    """Sizes of the model, the batch and a block of steps."""

    model: Mapping[str, Any]
    batch: int
    precision: str
    steps: int
    """Steps in a block."""
    rounds: int


GPU = TokensSize(
    {"hidden": 768, "layers": 12, "heads": 12, "context": 1024}, 16, "bfloat16", steps=20, rounds=5
)
"""The smallest GPT-2: 85 million weights without its embedding tables."""
TINY = TokensSize({"hidden": 32, "layers": 2, "heads": 2, "context": 32}, 4, "float32", steps=5, rounds=1)


def measure() -> list[Figure]:
    """Train with both, alternating, plain and compiled."""
    if not torch.cuda.is_available():
        return compare(TINY, compiled=False)
    return [figure for compiled in (False, True) for figure in compare(GPU, compiled=compiled)]


def compare(size: TokensSize, *, compiled: bool) -> list[Figure]:
    """The figures of one size.

    Raises:
        ValueError: the losses of the two differ.
    """
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(folder)
        config = _config(size, folder, shards, compiled=compiled)
        ours, peer = _ours(config), _plain(config)
        _check([ours() for _ in range(COMPARED)], [peer() for _ in range(COMPARED)], config)
        taken = alternating(_block(ours, size.steps), _block(peer, size.steps), size.rounds)
    what = f"time per token{', compiled' if compiled else ''}, on {hardware.where()}"
    tokens = size.steps * size.batch * config.model.context
    one, other = (tuple(1e6 * seconds / tokens for seconds in arm) for arm in taken)
    ratio = median(mine / theirs for mine, theirs in zip(one, other, strict=True))
    return [
        Figure(
            f"{what} (median of paired ratios {ratio:.3f}{_utilisation(config.model, 1e6 / median(one))})",
            Repeats("trainyard", "µs", one),
            at_most=1.0,
            peer=Repeats("plain PyTorch", "µs", other),
        )
    ]


def write_shards(folder: str) -> str:
    """Write the bytes of texts that every host has as shards of tokens; returns the path."""
    library = Path(sysconfig.get_paths()["stdlib"])
    files = [file for name in ("json", "email") for file in sorted((library / name).rglob("*.py"))]
    contents = (np.frombuffer(file.read_bytes(), np.uint8) for file in files)
    write_tokens(Path(folder, "shards"), (np.append(each, np.uint16(END)) for each in contents), VOCABULARY)
    return f"{folder}/shards"


def flops_per_token(model: ModelConfig) -> float:
    """FLOP per token: 6 for each weight that multiplies, and 12 · layers · width · context for attention."""
    weights = model.layers * 12 * model.hidden**2 + model.hidden * VOCABULARY
    return 6 * weights + 12 * model.layers * model.hidden * model.context


def _utilisation(model: ModelConfig, tokens_per_second: float) -> str:
    peak = peak_of(torch.cuda.get_device_name(), "bfloat16") if torch.cuda.is_available() else None
    if peak is None:
        return ""
    return f", {tokens_per_second:,.0f} tokens/s, MFU {tokens_per_second * flops_per_token(model) / peak:.1%}"


def _config(size: TokensSize, folder: str, shards: str, *, compiled: bool) -> TrainConfig:
    return parse_config(
        {
            "run_dir": f"{folder}/run",
            "steps": 1_000_000,
            "seed": 7,
            "precision": size.precision,
            "compile": compiled,
            "model": {"name": "gpt", "dropout": 0, **size.model},
            "data": {"name": "text", "path": shards, "batch_size_per_rank": size.batch},
            "optim": {"name": "adamw", "lr": 3e-4, "weight_decay": 0.1},
        }
    )


def _ours(config: TrainConfig) -> Callable[[], float]:
    startup.defer_compiler()
    trainer = Trainer(config, process_group.join(config.timeouts, {}), PreemptionNotice(60))
    trainer.prepare(time.time())

    taken = 0

    def step() -> float:
        nonlocal taken
        with startup.deterministic():
            trainer.take_step()
        taken += 1
        if taken > COMPARED:
            return 0.0
        trainer.read()
        assert trainer.loss is not None
        return trainer.loss

    return step


def _plain(config: TrainConfig) -> Callable[[], float]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = load_dataset(config.data, config.model.context, config.seed)
    order = GlobalOrder(len(data.train), config.seed)
    torch.manual_seed(config.seed)
    model = build_model(config.model, data.num_classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), config.optim.lr, weight_decay=config.optim.weight_decay)
    if config.compile:
        model.compile()
    size, taken = config.data.batch_size_per_rank, 0
    reduced = config.precision == "bfloat16"

    def step() -> float:
        nonlocal taken
        batch = data.train.take(order.of_rank(taken * size, size, 0)).to(device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=reduced):
            scores = model(batch.inputs)
            loss = functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten())
        loss.backward()
        optimizer.step()
        taken += 1
        return loss.item() if taken <= COMPARED else 0.0

    return step


def _block(step: Callable[[], float], steps: int) -> Block:
    def block() -> float:
        hardware.wait()
        begin = time.monotonic()
        for _ in range(steps):
            step()
        hardware.wait()
        return time.monotonic() - begin

    return block


def _check(ours: list[float], peer: list[float], config: TrainConfig) -> None:
    allowed = 1e-3 if config.precision == "float32" else 2e-2
    for step, (one, other) in enumerate(zip(ours, peer, strict=True), start=1):
        if abs(one - other) > allowed * other:
            raise ValueError(f"step {step}: loss {one} in our arm, {other} in plain PyTorch's")
