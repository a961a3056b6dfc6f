"""The networks to choose from, as sequences of layers."""

from __future__ import annotations

from torch import nn

from trainyard_train.models.config import ModelConfig
from trainyard_train.models.gpt import build_gpt, gpt_tensor_plan
from trainyard_train.models.resnet import build_resnet


def build_model(config: ModelConfig, num_classes: int) -> nn.Sequential:
    """The network that the configuration names; weights come from PyTorch's global generator."""
    build = {"mlp": _mlp, "convnet": _convnet, "gpt": build_gpt, "resnet": build_resnet}[config.name]
    return build(config, num_classes)


def tensor_plan(config: ModelConfig) -> dict[str, str]:
    """Layer → `column` or `row`: how tensor parallelism divides its weight."""
    return gpt_tensor_plan(config) if config.name == "gpt" else {"1": "column", "4": "row"}


def _mlp(config: ModelConfig, num_classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, config.hidden),
        nn.ReLU(),
        nn.Dropout(config.dropout),
        nn.Linear(config.hidden, num_classes),
    )


def _convnet(config: ModelConfig, num_classes: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, config.hidden, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(config.hidden, 2 * config.hidden, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(config.dropout),
        nn.Linear(2 * config.hidden * 16, num_classes),
    )
