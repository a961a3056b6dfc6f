"""Helpers for tensors in checkpoint files: parses headers into pieces, intersects boxes, and converts and
copies tensors of any type.

A box is a region of a whole tensor: the offset at which the region begins, and its shape.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

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
"""Types that safetensors has, with their names; tensors of other types are written as bytes (`U8`) with the
type in the metadata."""
KINDS: Final = {name: kind for kind, name in TYPES.items()}
Offset = tuple[int, ...]
"""Where a piece begins in the whole tensor, in each dimension."""


@dataclass(frozen=True)
class Piece:
    """A part of a tensor in a file."""

    whole: tuple[int, ...]
    """Shape of the whole tensor."""
    offset: Offset
    shape: tuple[int, ...]
    dtype: torch.dtype
    begin: int
    """Position of the first byte, from the start of the file."""

    @property
    def end(self) -> int:
        """Position after the last byte."""
        return self.begin + math.prod(self.shape) * self.dtype.itemsize


def read_header(data: bytes | bytearray | memoryview) -> tuple[dict[str, Piece], dict[str, str]]:
    """Read the header of a safetensors file that a capture made.

    Args:
        data: from the file's begin to the first tensor.

    Returns:
        what the file holds, by name, tensors in the order in which they were saved, and its metadata.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the data are no such header.
    """
    entries = json.loads(bytes(data[8:]))
    metadata = entries.pop("__metadata__")
    offsets, types = json.loads(metadata["places"]), json.loads(metadata.get("types", "{}"))
    # Writers of safetensors sort by type and name, which is not the order of an optimizer's parameters.
    pieces = {
        name: _piece(entries[name], offsets.get(name), types.get(name), len(data))
        for name in dict.fromkeys([*offsets, *entries])
    }
    return pieces, metadata


def _piece(entry: Mapping[str, Any], offset: Sequence[Any] | None, kind: str | None, header: int) -> Piece:
    """Parse the header entry of one tensor, in a file whose header has so many bytes."""
    shape, dtype = tuple(entry["shape"]), KINDS[entry["dtype"]]
    if kind:
        shape, dtype = shape[:-1], getattr(torch, kind)
    whole, begins = offset or (shape, [0] * len(shape))
    return Piece(tuple(whole), tuple(begins), shape, dtype, header + entry["data_offsets"][0])


def common(
    one: Offset, one_shape: Sequence[int], other: Offset, other_shape: Sequence[int]
) -> list[tuple[int, int]]:
    """Intersection of two boxes in each dimension; empty if an end comes before its start."""
    sides = zip(one, one_shape, other, other_shape, strict=True)
    return [(max(a, b), min(a + size, b + other)) for a, size, b, other in sides]


def slices(box: Iterable[tuple[int, int]], origin: Offset) -> tuple[slice, ...]:
    """Slices of a region in a tensor that begins at `origin`."""
    return tuple(slice(low - begin, high - begin) for (low, high), begin in zip(box, origin, strict=True))


def from_bytes(data: bytes | bytearray | memoryview) -> torch.Tensor:
    """View bytes that were read as a tensor."""
    if not len(data):  # `frombuffer` refuses an empty buffer
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        # An object store's client returns read-only memory; no code writes to it.
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return torch.frombuffer(data, dtype=torch.uint8)


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
    """View a tensor of any type as bytes."""
    return (tensor if tensor.dim() else tensor.unsqueeze(0)).view(torch.uint8)


def name_of(dtype: torch.dtype) -> str:
    """Name of a type, such as `float32`."""
    return str(dtype).removeprefix("torch.")
