"""Helpers for DTensors (local part, offset, part of a whole), and `Late`: values that are copied from the
device without waiting and read later.
"""

from __future__ import annotations

from typing import Any

import torch


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a DTensor, which is distributed over ranks."""
    return hasattr(tensor, "to_local")


def local_of(tensor: torch.Tensor | None) -> torch.Tensor:
    """This rank's part of a tensor; all of it if it is not distributed."""
    assert tensor is not None
    local: torch.Tensor = tensor.to_local() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]
    return local


class Late:
    """Numbers on their way from the device: to read them waits until it has come so far."""

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values.to("cpu", non_blocking=True)
        self._event = None
        if values.device.type == "cuda":
            self._event = torch.cuda.Event()
            self._event.record()

    def read(self) -> Any:  # noqa: ANN401
        """Wait for the numbers; returns what `tolist` does: a list, or one number for shape ()."""
        if self._event:
            self._event.synchronize()
        return self._values.tolist()


def offset_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Offset of this rank's part in the whole tensor, in each dimension."""
    return _box_of(tensor)[0] if is_distributed(tensor) else (0,) * tensor.dim()


def part_of(whole: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The part of a whole tensor that this rank needs for a distributed one."""
    if not is_distributed(target):
        return whole
    begins, sizes = _box_of(target)
    return whole[tuple(slice(begin, begin + size) for begin, size in zip(begins, sizes, strict=True))]


def replica_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Index of this rank among those of its mesh that have the same part of a DTensor, and their number."""
    index, count = 0, 1
    devices = tensor.device_mesh  # type: ignore[attr-defined]
    for dimension, placement in enumerate(tensor.placements):  # type: ignore[attr-defined]
        if placement.is_replicate():
            index = index * devices.size(dimension) + devices.get_local_rank(dimension)
            count *= devices.size(dimension)
    return index, count


def _box_of(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Offset and shape of this rank's part of a DTensor."""
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    devices, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    sizes, begins = compute_local_shape_and_global_offset(tensor.shape, devices, placements)
    return tuple(begins), tuple(sizes)
