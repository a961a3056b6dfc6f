"""The optimizers to choose from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from trainyard_train.optim.config import OptimConfig


def build_optimizer(
    config: OptimConfig, parameters: Iterable[torch.nn.Parameter], *, together: bool = True
) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum (where there is momentum), or AdamW.

    Args:
        config: which, and its settings.
        parameters: to be optimized.
        together: whether PyTorch may update many at once; not where some are cut over ranks and others are
            not. Those that are whole are updated in one pass over each (fused), which is the fastest.
    """
    parameters = list(parameters)
    whole = not any(is_distributed(parameter) for parameter in parameters)
    how: dict[str, Any] = {"foreach": False} if not together else {"fused": True} if whole else {}
    if config.name == "adamw":
        return torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay, **how)
    return torch.optim.SGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.momentum > 0,
        **how,
    )


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether it is cut over ranks: a DTensor, whose type is not imported where it is not used."""
    return hasattr(tensor, "to_local")


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate in the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate
