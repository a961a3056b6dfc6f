"""Types of tensors in files, and copies of any type."""

from __future__ import annotations

from typing import Final

import torch

TYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ",
    torch.float8_e5m2: "F8_E5M2",
    torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""As safetensors calls them; tensors of others are written as their bytes (`U8`), with their type beside."""
KINDS: Final = {name: kind for kind, name in TYPES.items()}
Offset = tuple[int, ...]
"""Where a piece begins in the whole tensor, in each dimension."""


def file_name(rank: int) -> str:
    """The file that a rank writes."""
    return f"rank-{rank:05d}.safetensors"


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy values of any type; PyTorch itself cannot with all of them."""
    if target.dtype in TYPES or target.dtype != source.dtype:
        target.copy_(source)
    elif target.numel():
        as_bytes(target).copy_(as_bytes(source.contiguous()))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A view of a tensor of any type."""
    return (tensor if tensor.dim() else tensor.unsqueeze(0)).view(torch.uint8)


def name_of(dtype: torch.dtype) -> str:
    """Such as `float32`."""
    return str(dtype).removeprefix("torch.")
