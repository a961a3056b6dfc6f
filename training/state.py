"""Turning a model, its optimizer and the random generators into files, and back."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from training.checkpoint import Checkpoint
from training.mesh import Mesh

MODEL = "model.pt"
OPTIMIZER = "optimizer.pt"


def capture(model: nn.Module, optimizer: torch.optim.Optimizer, mesh: Mesh) -> dict[str, bytes]:
    """The files that this rank adds to a checkpoint. Rank 0 adds what all have in common."""
    files = {_rank_file(mesh.rank): _encode(_generators(mesh.device))}
    if mesh.leads:
        files[MODEL] = _encode(model.state_dict())
        files[OPTIMIZER] = _encode(optimizer.state_dict())
    return files


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer, mesh: Mesh) -> None:
    """Put a checkpoint back. A rank that did not exist when it was taken keeps its fresh generators.

    Raises:
        DamagedError: a file is not what the manifest says.
    """
    model.load_state_dict(_decode(checkpoint.read(MODEL), mesh.device))
    optimizer.load_state_dict(_decode(checkpoint.read(OPTIMIZER), mesh.device))
    name = _rank_file(mesh.rank)
    if name in checkpoint.manifest.files:
        generators = _decode(checkpoint.read(name), torch.device("cpu"))
        torch.set_rng_state(generators["cpu"])
        if mesh.device.type == "cuda" and "cuda" in generators:
            torch.cuda.set_rng_state(generators["cuda"], mesh.device)


def weights_sha256(model: nn.Module) -> str:
    """A digest of every parameter and buffer: equal if and only if they are equal bit for bit."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _rank_file(rank: int) -> str:
    return f"rank-{rank:05d}.pt"


def _generators(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _encode(value: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _decode(data: bytes, device: torch.device) -> dict[str, Any]:
    value: dict[str, Any] = torch.load(io.BytesIO(data), map_location=device, weights_only=True)
    return value
