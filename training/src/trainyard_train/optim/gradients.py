"""Computes this rank's share of the squared gradient norm under FSDP, tensor and pipeline parallelism, and
the divisor that clips gradients. The sum over all ranks is the squared global norm.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from trainyard_train.tensors import is_distributed, local_of

_EPSILON = 1e-6
"""Added to the norm before a division, as in `torch.nn.utils.clip_grad_norm_`."""


def squared_norm(parameters: Iterable[torch.nn.Parameter], ranks: int) -> torch.Tensor:
    """This rank's term of the squared global norm, which is the sum over all ranks.

    A piece that several ranks have counts on each of them by one over their number.

    Args:
        parameters: parameters of this rank, with their gradients.
        ranks: number of ranks in this one's pipeline stage, which hold the same layers.

    Returns:
        shape (), float64, on the parameters' device; the host waits for nothing.
    """
    by_copies: dict[int, list[torch.Tensor]] = {}
    device = torch.device("cpu")
    for parameter in parameters:
        device = parameter.device
        if parameter.grad is None:
            continue
        gradient = _placed_as(parameter)
        if local_of(gradient).numel():
            by_copies.setdefault(_copies(gradient, ranks), []).append(local_of(gradient))
    parts = [
        torch.stack(torch._foreach_norm(gradients)).double().square().sum() / copies
        for copies, gradients in by_copies.items()
    ]
    return sum(parts[1:], parts[0]) if parts else torch.zeros((), dtype=torch.float64, device=device)


def divisor(norm: torch.Tensor, longest: float) -> torch.Tensor:
    """Divisor that shortens a gradient of that norm to `longest`; 1 if it is not longer."""
    return ((norm + _EPSILON) / longest).clamp(min=1)


def _placed_as(parameter: torch.nn.Parameter) -> torch.Tensor:
    """Gradient of a parameter, distributed as the parameter; partial sums are reduced."""
    gradient = parameter.grad
    assert gradient is not None
    if is_distributed(gradient) and gradient.placements != parameter.placements:  # type: ignore[attr-defined]
        gradient = gradient.redistribute(placements=parameter.placements)  # type: ignore[attr-defined]
        parameter.grad = gradient
    return gradient


def _copies(tensor: torch.Tensor, ranks: int) -> int:
    """Number of ranks that have the same piece."""
    if not is_distributed(tensor):
        return ranks
    mesh = tensor.device_mesh  # type: ignore[attr-defined]
    copies = ranks // mesh.size()
    for dimension, placement in enumerate(tensor.placements):  # type: ignore[attr-defined]
        if placement.is_replicate():
            copies *= mesh.size(dimension)
    return int(copies)
