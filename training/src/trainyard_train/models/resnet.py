"""Residual networks (He et al. 2015) with group normalization, as a sequence of layers.

The paper normalizes over the batch: the result for a sample then depends on the other samples of its rank,
and so on the number of ranks. With group normalization (Wu & He 2018: within half a per cent of the paper's
error on ImageNet) it does not. So two ranks of n samples equal one of 2n, micro-batches change nothing, and a
run continues the same with another world size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import torch
from torch import nn

from trainyard_train.models.config import ModelConfig

BLOCKS: Final = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}
"""Depth → number of blocks in each of the four stages; depths from 50 on use bottlenecks."""
_GROUPS: Final = 32
_WIDER: Final = 4
"""Ratio of the channels at the ends of a bottleneck to those inside."""


def resnet_layers(config: ModelConfig, num_classes: int) -> Iterator[tuple[str, nn.Module]]:
    """Pictures of shape (n, 3, side, side) → scores of shape (n, classes); the paper has 64 hidden."""
    yield "0", _stem(config.hidden)
    channels, index = config.hidden, 1
    for stage, count in enumerate(BLOCKS[config.depth]):
        for number in range(count):
            stride = 2 if stage and not number else 1
            block = ResidualBlock(channels, config.hidden << stage, stride, config.depth >= 50)
            yield str(index), block
            channels, index = block.channels, index + 1
    yield str(index), _head(channels, num_classes, config.dropout)


class ResidualBlock(nn.Module):
    """Two or three convolutions, added to what they were given; they begin as nothing (Goyal et al. 2017)."""

    def __init__(self, channels: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        self.channels = width * _WIDER if bottleneck else width
        if bottleneck:
            shapes = [(channels, width, 1, 1), (width, width, 3, stride), (width, self.channels, 1, 1)]
        else:
            shapes = [(channels, width, 3, stride), (width, width, 3, 1)]
        parts: list[nn.Module] = []
        for shape in shapes:
            parts += [_convolution(*shape), _norm(shape[1]), nn.ReLU()]
        self.change = nn.Sequential(*parts[:-1])
        self.keep: nn.Module = nn.Identity()
        if stride > 1 or channels != self.channels:
            self.keep = nn.Sequential(_convolution(channels, self.channels, 1, stride), _norm(self.channels))
        last = parts[-2]
        assert isinstance(last, nn.GroupNorm)
        nn.init.zeros_(last.weight)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.keep(values) + self.change(values))


def _stem(width: int) -> nn.Sequential:
    return nn.Sequential(_convolution(3, width, 7, 2), _norm(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1))


def _head(channels: int, num_classes: int, dropout: float) -> nn.Sequential:
    score = nn.Linear(channels, num_classes)
    nn.init.normal_(score.weight, std=0.01)
    nn.init.zeros_(score.bias)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), score)


def _convolution(channels: int, width: int, size: int, stride: int) -> nn.Conv2d:
    layer = nn.Conv2d(channels, width, size, stride, padding=size // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


def _norm(channels: int) -> nn.GroupNorm:
    groups = math.gcd(_GROUPS, channels)
    return nn.GroupNorm(groups if groups < channels else max(1, groups // 2), channels)
