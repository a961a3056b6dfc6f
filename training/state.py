"""Turning a model, its optimizer and the random generators into files, and back.

Every tensor is cut along its first dimension into one part per rank, as FSDP cuts it, and each rank writes
its parts. So the ranks share the work under DDP too, and a checkpoint can be loaded by any number of ranks
and by any strategy: what is in it does not depend on either. PyTorch's own distributed checkpoints would
do this as well; importing them alone takes longer than all of a restart does here.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from training.checkpoint import Checkpoint
from training.mesh import Mesh


@dataclass(frozen=True)
class State:
    """What a checkpoint holds of a model and its optimizer."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    mesh: Mesh

    def capture(self) -> dict[str, Any]:
        """A copy of this rank's parts and generators that later steps do not touch."""
        parts = {name: self._part(tensor).to("cpu", copy=True) for name, tensor in self._tensors()}
        return {"parts": parts, "generators": _generators(self.mesh.device)}

    def restore(self, checkpoint: Checkpoint) -> None:
        """Put a checkpoint back. A rank that did not exist when it was taken keeps its fresh generators.

        Raises:
            DamagedError: a file is not what the manifest says.
        """
        saved_by = checkpoint.manifest.world_size
        own_part_is_all = self._sharded() and saved_by == self.mesh.world_size
        files = {
            rank: decode(checkpoint.read(file_name(rank)))
            for rank in ([self.mesh.rank] if own_part_is_all else range(saved_by))
        }
        saved = _join([file["parts"] for file in files.values()])
        self._make_slots(saved)
        with torch.no_grad():
            for name, tensor in self._tensors():
                self._fill(tensor, saved[name])
        if self.mesh.rank in files:
            _set_generators(files[self.mesh.rank]["generators"], self.mesh.device)

    def weights_sha256(self) -> str:
        """A digest of every parameter and buffer: equal if and only if they are equal bit for bit.

        All ranks must call it: where the model is sharded, they bring it together.
        """
        digest = hashlib.sha256()
        for name, tensor in self.model.state_dict().items():
            whole = tensor.full_tensor() if _is_sharded(tensor) else tensor
            whole = whole.detach().cpu().contiguous()
            digest.update(f"{name} {whole.dtype} {tuple(whole.shape)}\n".encode())
            digest.update(whole.flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """All that is saved, by name, as it lives in the model and the optimizer."""
        for name, tensor in self.model.state_dict().items():
            yield f"model.{name}", tensor
        for name, parameter in self.model.named_parameters():
            for slot, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer.{name}.{slot}", value

    def _make_slots(self, saved: Mapping[str, torch.Tensor]) -> None:
        """Give a new optimizer, which has none before its first step, the slots that were saved."""
        parameters = dict(self.model.named_parameters())
        for name, value in saved.items():
            kind, _, rest = name.partition(".")
            if kind == "optimizer":
                of, _, slot = rest.rpartition(".")
                parameter = parameters[of]
                blank = torch.zeros_like(parameter if value.dim() else value, requires_grad=False)
                self.optimizer.state[parameter][slot] = blank

    def _part(self, tensor: torch.Tensor) -> torch.Tensor:
        local = _local(tensor)
        return local if _is_sharded(tensor) or not local.dim() else local[self._rows(len(local))]

    def _fill(self, tensor: torch.Tensor, saved: torch.Tensor) -> None:
        local = _local(tensor)
        local.copy_(saved if saved.shape == local.shape else saved[self._rows(len(saved))])

    def _rows(self, num_rows: int) -> slice:
        """This rank's rows: as many for each rank, but fewer or none for the last ones."""
        each = -(-num_rows // self.mesh.world_size)
        return slice(self.mesh.rank * each, (self.mesh.rank + 1) * each)

    def _sharded(self) -> bool:
        return any(map(_is_sharded, self.model.parameters()))


def file_name(rank: int) -> str:
    """The file that a rank writes."""
    return f"rank-{rank:05d}.pt"


def encode(captured: Mapping[str, Any]) -> bytes:
    """What `State.capture` gave, as a file."""
    buffer = io.BytesIO()
    torch.save(dict(captured), buffer)
    return buffer.getvalue()


def decode(data: bytes) -> dict[str, Any]:
    """Read what `encode` wrote; nothing in it is executed."""
    value: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    return value


def load_tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint, whole: `model.<name>` and `optimizer.<name>.<slot>`.

    Raises:
        DamagedError: a file is not what the manifest says.
    """
    ranks = range(checkpoint.manifest.world_size)
    return _join([decode(checkpoint.read(file_name(rank)))["parts"] for rank in ranks])


def _join(files: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    joined = {}
    for name, first in files[0].items():
        joined[name] = torch.cat([file[name] for file in files]) if first.dim() else first
    return joined


def _is_sharded(tensor: torch.Tensor) -> bool:
    return hasattr(tensor, "to_local")  # a DTensor; its type is not imported where it is not used


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local: torch.Tensor = tensor.to_local() if _is_sharded(tensor) else tensor  # type: ignore[attr-defined]
    return local


def _generators(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_generators(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
