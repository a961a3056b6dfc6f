"""Builds SGD and AdamW on PyTorch's fused kernels, which can skip an update and divide gradients on the
device.

A fused kernel takes two tensors, which are attributes of the optimizer, as GradScaler sets them: `found_inf`
disables the update, `grad_scale` divides the gradients. So overflow and clipping are decided on the device,
and the host need not wait.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from trainyard_train.optim.schedule import OptimConfig
from trainyard_train.tensors import local_of


class FusedSGD(torch.optim.SGD):
    """SGD, of DTensors too, whose parts PyTorch's own `step` does not pass to the fused kernel."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update this rank's parts in one pass."""
        for group in self.param_groups:
            used = [each for each in group["params"] if each.grad is not None]
            if not used:
                continue
            momenta = []
            for each in used if group["momentum"] else ():
                if "momentum_buffer" not in self.state[each]:  # at 0, so that a skipped first step is correct
                    self.state[each]["momentum_buffer"] = torch.zeros_like(each)
                momenta.append(local_of(self.state[each]["momentum_buffer"]))
            torch._fused_sgd_(
                [local_of(each) for each in used],
                [local_of(each.grad) for each in used],
                momenta,
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                lr=group["lr"],
                dampening=group["dampening"],
                nesterov=group["nesterov"],
                maximize=group["maximize"],
                is_first_step=False,
                grad_scale=getattr(self, "grad_scale", None),
                found_inf=getattr(self, "found_inf", None),
            )


def build_optimizer(config: OptimConfig, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum (where there is momentum), or AdamW."""
    parameters = list(parameters)
    if config.name == "adamw":
        return torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)
    return FusedSGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.momentum > 0,
        fused=True,
    )


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate in the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate
