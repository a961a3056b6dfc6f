"""GPU benchmark: time per token of training a Llama of 1.2 billion parameters with `trainyard_train.Run`,
against the same loop without it.

The model is that of Llama 3.2 1B, and the settings are torchtitan's for one GPU: parameters in float32 and
bfloat16 by autocast, blocks and loss compiled one by one, fused AdamW, PyTorch's attention. Both arms train
the same model, alternating, so that only the calls of the library differ. Without a GPU a tiny model is
trained on the CPU, which shows only that the benchmark runs.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks.figures import Figure, Repeats, alternating
from benchmarks.gpu import hardware
from trainyard_train import Run


@dataclass(frozen=True)
class LlamaSize:
    """Sizes of a Llama, its batch and a block of steps."""

    hidden: int
    layers: int
    heads: int
    groups: int
    """Heads of keys and values (grouped-query attention)."""
    inner: int
    vocabulary: int
    context: int
    batch: int
    steps: int
    rounds: int


BILLION = LlamaSize(2048, 16, 32, 8, 8192, 128_256, context=2048, batch=4, steps=10, rounds=4)
TINY = LlamaSize(32, 2, 4, 2, 64, 128, context=16, batch=2, steps=3, rounds=1)


def measure() -> list[Figure]:
    """Train with and without the library, alternating."""
    size = BILLION if hardware.ON_GPU else TINY
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder, every_steps=1_000_000)
        model, step = _training(size)
        run.track(model=model)
        run.load()
        with_run = partial(_block, lambda: run.step(step()), size.steps)
        without = partial(_block, step, size.steps)
        for warm in (with_run, without):
            warm()
        ours, peer = alternating(with_run, without, size.rounds)
        run.close()
    tokens = size.steps * size.batch * size.context
    parameters = sum(each.numel() for each in model.parameters())
    one, other = (tuple(1e6 * seconds / tokens for seconds in arm) for arm in (ours, peer))
    return [
        Figure(
            f"time per token, Llama of {parameters / 1e6:,.0f} million parameters, on {hardware.where()}",
            Repeats("with trainyard_train.Run", "µs", one),
            1.02,
            peer=Repeats("the same loop without", "µs", other),
        )
    ]


def _training(size: LlamaSize) -> tuple[nn.Module, Callable[[], torch.Tensor]]:
    """The model, and what takes a step and returns its loss."""
    torch.manual_seed(7)
    torch.set_float32_matmul_precision("high")
    with hardware.DEVICE:
        model = Llama(size)
    loss_of = functional.cross_entropy
    if hardware.ON_GPU:
        for block in model.blocks:
            block.compile(fullgraph=True)
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.AdamW(
        model.parameters(), 3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=hardware.ON_GPU or None
    )
    data = torch.randint(size.vocabulary, (size.batch, size.context + 1), device=hardware.DEVICE)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(hardware.DEVICE.type, dtype=torch.bfloat16, enabled=hardware.ON_GPU):
            scores = model(data[:, :-1])
            loss: torch.Tensor = loss_of(scores.flatten(0, 1).float(), data[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        return loss

    return model, step


def _block(step: Callable[[], object], steps: int) -> float:
    hardware.wait()
    begin = time.monotonic()
    for _ in range(steps):
        step()
    hardware.wait()
    return time.monotonic() - begin


class Llama(nn.Module):
    """Takes tokens, returns scores."""

    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.embedding = nn.Embedding(size.vocabulary, size.hidden)
        self.blocks = nn.ModuleList(_LlamaBlock(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden)
        width = size.hidden // size.heads
        rates = 500_000.0 ** (-torch.arange(0, width, 2) / width)
        angles = torch.outer(torch.arange(size.context), rates)
        self.register_buffer("rotations", torch.stack([angles.cos(), angles.sin()]), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        values = self.embedding(tokens)
        for block in self.blocks:
            values = block(values, self.rotations)
        scores: torch.Tensor = functional.linear(self.norm(values), self.embedding.weight)
        return scores


class _LlamaBlock(nn.Module):
    def __init__(self, size: LlamaSize) -> None:
        super().__init__()
        self.width = size.hidden // size.heads
        few = size.groups * self.width
        self.first, self.second = nn.RMSNorm(size.hidden), nn.RMSNorm(size.hidden)
        self.queries = nn.Linear(size.hidden, size.hidden, bias=False)
        self.keys, self.values = (nn.Linear(size.hidden, few, bias=False) for _ in range(2))
        self.out = nn.Linear(size.hidden, size.hidden, bias=False)
        self.gate, self.up = (nn.Linear(size.hidden, size.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(size.inner, size.hidden, bias=False)

    def forward(self, values: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
        inside = self.first(values)
        queries, keys, contents = (
            part(inside).unflatten(-1, (-1, self.width)).transpose(1, 2)
            for part in (self.queries, self.keys, self.values)
        )
        attended = functional.scaled_dot_product_attention(
            _rotated(queries, rotations), _rotated(keys, rotations), contents, is_causal=True, enable_gqa=True
        )
        values = values + self.out(attended.transpose(1, 2).flatten(2))
        inside = self.second(values)
        result: torch.Tensor = values + self.down(functional.silu(self.gate(inside)) * self.up(inside))
        return result


def _rotated(values: torch.Tensor, rotations: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding."""
    one, other = values.float().chunk(2, dim=-1)
    cos, sin = rotations
    return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1).to(values.dtype)
