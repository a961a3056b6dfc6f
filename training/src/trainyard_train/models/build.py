"""Builds the model that a configuration names, as a sequence of layers.

`layers_of` makes one layer at a time, so a rank never needs memory for more than one layer besides its shard.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from torch import nn

from trainyard_train.models.config import ModelConfig
from trainyard_train.models.gpt import gpt_layers

Layers = Iterator[tuple[str, nn.Module]]


def build_model(config: ModelConfig, num_classes: int) -> nn.Sequential:
    """The network that the configuration names; weights come from PyTorch's global generator."""
    layers = sorted(layers_of(config, num_classes), key=lambda layer: int(layer[0]))
    return nn.Sequential(OrderedDict(layers))


def layers_of(config: ModelConfig, num_classes: int) -> Layers:
    """Layers of a model with their names, in the order in which the generator initializes their weights."""
    make = {"mlp": _mlp, "convnet": _convnet, "gpt": gpt_layers}[config.name]
    return make(config, num_classes)


def _mlp(config: ModelConfig, num_classes: int) -> Layers:
    yield "0", nn.Flatten()
    yield "1", nn.Linear(64, config.hidden)
    yield "2", nn.ReLU()
    yield "3", nn.Dropout(config.dropout)
    yield "4", nn.Linear(config.hidden, num_classes)


def _convnet(config: ModelConfig, num_classes: int) -> Layers:
    yield "0", nn.Conv2d(1, config.hidden, 3, padding=1)
    yield "1", nn.ReLU()
    yield "2", nn.Conv2d(config.hidden, 2 * config.hidden, 3, padding=1)
    yield "3", nn.ReLU()
    yield "4", nn.MaxPool2d(2)
    yield "5", nn.Flatten()
    yield "6", nn.Dropout(config.dropout)
    yield "7", nn.Linear(2 * config.hidden * 16, num_classes)
