"""Builds SGD and AdamW on PyTorch's fused kernels, which can skip an update and divide gradients on the
device.

A fused kernel takes two tensors: one disables the update, the other divides the gradients. So overflow and
clipping are decided on the device, and the host need not wait. PyTorch's own `step` does not pass these
tensors for DTensors with SGD, nor for parameters on several meshes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from trainyard_train.optim.schedule import OptimConfig
from trainyard_train.tensors import local_of


class Fused(torch.optim.Optimizer):
    """An optimizer that updates each rank's parts in one pass, with the attributes that GradScaler sets."""

    found_inf: torch.Tensor | None = None
    """Shape (), float32, on the device: not 0 if this step must not change anything."""
    grad_scale: torch.Tensor | None = None
    """Shape (), float32, on the device: divisor of the gradients, applied in place."""

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            used = [parameter for parameter in group["params"] if parameter.grad is not None]
            if used:
                self._update(group, used)

    def _update(self, group: Mapping[str, Any], used: Sequence[torch.Tensor]) -> None:
        """Update parameters of one group, which all have gradients."""
        raise NotImplementedError

    def _slots(
        self,
        used: Sequence[torch.Tensor],
        name: str,
        begin: Callable[[torch.Tensor], torch.Tensor] = torch.zeros_like,
    ) -> list[torch.Tensor]:
        """This rank's parts of one slot (such as the momentum) of each parameter, which begins as 0."""
        for parameter in used:
            if name not in self.state[parameter]:
                self.state[parameter][name] = begin(parameter)
        return [local_of(self.state[parameter][name]) for parameter in used]


class FusedSGD(Fused, torch.optim.SGD):
    """SGD."""

    def _update(self, group: Mapping[str, Any], used: Sequence[torch.Tensor]) -> None:
        torch._fused_sgd_(
            [local_of(each) for each in used],
            [local_of(each.grad) for each in used],
            self._slots(used, "momentum_buffer") if group["momentum"] else [],
            weight_decay=group["weight_decay"],
            momentum=group["momentum"],
            lr=group["lr"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            maximize=group["maximize"],
            is_first_step=False,  # momentum starts at 0, so that a skipped first step is correct
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
        )


class FusedAdamW(Fused, torch.optim.AdamW):
    """AdamW."""

    def _update(self, group: Mapping[str, Any], used: Sequence[torch.Tensor]) -> None:
        steps = self._slots(used, "step", lambda p: torch.zeros((), dtype=torch.float32, device=p.device))
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            [local_of(each) for each in used],
            [local_of(each.grad) for each in used],
            self._slots(used, "exp_avg"),
            self._slots(used, "exp_avg_sq"),
            [],
            steps,
            lr=group["lr"],
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            weight_decay=group["weight_decay"],
            eps=group["eps"],
            amsgrad=False,
            maximize=group["maximize"],
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
        )
        if self.found_inf is not None:  # a step that was skipped does not count
            torch._foreach_sub_(steps, [self.found_inf] * len(steps))


def build_optimizer(config: OptimConfig, parameters: Iterable[torch.nn.Parameter]) -> Fused:
    """SGD with Nesterov momentum (where there is momentum), or AdamW."""
    parameters = list(parameters)
    if config.name == "adamw":
        return FusedAdamW(parameters, lr=config.lr, weight_decay=config.weight_decay, fused=True)
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
