"""Gives the gradient buckets of DDP their order before the first step of a process."""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch
from torch.nn.parallel import DistributedDataParallel


def order_buckets(known: Sequence[int]) -> None:
    """Order the buckets of all DDP modules that have some of these parameters. All ranks must call it.

    DDP begins with one bucket, and makes others after its first backward pass, in the order in which
    gradients became ready. The order of a sum over more than two ranks follows from the buckets, so the first
    step of a process that resumes would add its gradients in another order than the same step of a process
    that did not stop.

    Args:
        known: `id` of each parameter, in the same order on all ranks.
    """
    positions = {each: number for number, each in enumerate(known)}
    found: dict[int, DistributedDataParallel] = {}
    for each in gc.get_objects():  # a program may track the module inside; `isinstance` would load lazy ones
        if issubclass(type(each), DistributedDataParallel):
            own = [positions[id(p)] for p in each.module.parameters() if id(p) in positions]
            if own:
                found[min(own)] = each
    for _, module in sorted(found.items()):
        if not module.find_unused_parameters or module.static_graph:  # else it keeps its first buckets
            order_buckets_of(module)


@torch.enable_grad()
def order_buckets_of(module: DistributedDataParallel) -> None:
    """Order the buckets of one module, before its first step: see `order_buckets`.

    Run a backward pass of zeros from the last parameter to the first, about as real ones become ready.

    Where something else takes part in a backward pass, take the order of the parameters: as exact, but
    little of the communication overlaps with the computation.
    """
    parameters = [each for each in module._module_parameters if each.requires_grad]
    takes_part = (
        module.static_graph
        or module.mixed_precision is not None
        or bool(module._comm_hooks)
        or any(getattr(each, "sparse", False) for each in module.module.modules())
        or any(each._backward_hooks or each._post_accumulate_grad_hooks for each in parameters)
        or any(hasattr(each, "_in_backward_optimizers") for each in parameters)
    )
    if takes_part:
        module.reducer._push_all_rebuilt_params()
        return
    gradients = [each.grad for each in parameters]
    for each in parameters:
        each.grad = None
    module.reducer.prepare_for_forward()
    module.reducer.prepare_for_backward([])
    for each in reversed(parameters):
        torch.autograd.backward(each, torch.zeros_like(each))
    for each, gradient in zip(parameters, gradients, strict=True):
        each.grad = gradient
