"""`State`: captures a model, its optimizer and the random generators as one checkpoint file per rank, and
restores them under any layout.

Each rank writes the pieces of tensors that it has, with their offset in the whole. Where several ranks have
the same piece, as all have under DDP, they cut it along its first dimension and share the writing. So the
content of a checkpoint does not depend on the number of ranks, their mesh and the strategy.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn

from trainyard_train.checkpointing.checkpoint import Checkpoint, Manifest
from trainyard_train.checkpointing.digests import Data, room_for_digests
from trainyard_train.checkpointing.loading import Load, Targets
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.checkpointing.tensor_files import (
    TYPES,
    Offset,
    Piece,
    copy,
    from_bytes,
    name_of,
    read_header,
)
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.tensors import is_distributed, local_of, offset_of, replica_of

_GENERATOR: Final = "generator."
PAGE: Final = 4096
"""Bytes: a capture begins at a multiple, since direct writes to a disk need aligned memory."""


def sha256_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """Digest of tensors by name: of their types, shapes and bits, in any order."""
    lines = []
    for name, tensor in tensors.items():
        whole = tensor.full_tensor() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]
        whole = whole.detach().cpu().contiguous()
        digest = hashlib.sha256(whole.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
        lines.append(f"{name} {whole.dtype} {tuple(whole.shape)} {digest}\n")
    return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()


@dataclass(frozen=True)
class State:
    """The state of a model and its optimizer, to be captured and restored."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    mesh: Mesh
    memory: NodeMemory = field(default_factory=NodeMemory)
    """Memory that captures are written to."""
    _buffer: Buffer = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_buffer", Buffer(self.mesh.device.type == "cuda", self.memory))

    def capture(self, manifest: Manifest) -> Snapshot:
        """Copy this rank's pieces and generators into memory, as a file that later steps do not change."""
        tensors, offsets, learned = {}, {}, []
        parameters = {f"model.{name}" for name, _ in self.model.named_parameters()}
        for name, tensor in self._tensors():
            offset, tensors[name] = share_of(tensor, self.mesh)
            offsets[name] = (list(tensor.shape), list(offset))
            # Buffers may hold an infinity.
            if (name in parameters or name.startswith("optimizer.")) and tensor.is_floating_point():
                learned.append(name)
        for name, state in _generators(self.mesh.device).items():
            tensors[f"{_GENERATOR}{name}"] = state
        memory, copies = self._buffer.fill(tensors, offsets, {})
        advice = ": lower optim.lr, or raise optim.warmup_steps"
        return Snapshot(memory, manifest, {name: copies[name] for name in learned}, advice=advice)

    def restore(self, checkpoint: Checkpoint, key: str = "restore") -> None:
        """Restore a checkpoint. A rank that did not exist when it was captured keeps its fresh generators.

        Args:
            checkpoint: all ranks the same.
            key: prefix of keys in the store of the ranks, used once.

        Raises:
            DamagedError: on all ranks, if it lacks a part, or one was altered; weights and moments are then
                of no use.
        """
        load = Load(checkpoint, self.mesh, key)
        generators = {
            name: torch.empty(piece.shape, dtype=piece.dtype)
            for name, piece in (load.own_header.pieces.items() if load.own_header else ())
            if name.startswith(_GENERATOR)
        }
        targets: Targets = load.locate(lambda: self._targets(load.shapes))
        load.fill({**targets, **{name: ((0,), state) for name, state in generators.items()}})
        if generators:
            states = {name.removeprefix(_GENERATOR): state for name, state in generators.items()}
            _set_generators(states, self.mesh.device)

    def _targets(self, shapes: Mapping[str, tuple[int, ...]]) -> Targets:
        """The destination of each tensor; a new optimizer gets its slots."""
        self._make_slots(shapes)
        return {name: (offset_of(tensor), local_of(tensor).detach()) for name, tensor in self._tensors()}

    def weights_sha256(self) -> str:
        """Digest of every parameter and buffer: equal if and only if they are equal bit for bit.

        All ranks must call it: where the model is sharded, they bring it together.
        """
        return sha256_of(self.model.state_dict())

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """All live tensors of the model and the optimizer that are saved, by name."""
        for name, tensor in self.model.state_dict().items():
            yield f"model.{name}", tensor
        for name, parameter in self.model.named_parameters():
            for slot, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer.{name}.{slot}", value

    def _make_slots(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Give a new optimizer, which has none before its first step, the slots that were saved."""
        parameters = dict(self.model.named_parameters())
        for name, shape in shapes.items():
            kind, _, rest = name.partition(".")
            of, _, slot = rest.rpartition(".")
            if kind == "optimizer" and of in parameters and slot not in self.optimizer.state[parameters[of]]:
                parameter = parameters[of]
                # The step counter is on the device of the update: the weights' if the optimizer is fused.
                offset = parameter.device if self.optimizer.defaults.get("fused") else None
                blank = torch.zeros((), device=offset)
                if shape:
                    blank = torch.empty_like(parameter, requires_grad=False)  # all of it is read
                self.optimizer.state[parameter][slot] = blank


def share_of(tensor: torch.Tensor, mesh: Mesh, replicated: bool = True) -> tuple[Offset, torch.Tensor]:
    """The share of this rank's part of a tensor that it writes, with its offset in the whole.

    Ranks that have the same part divide it: of a DTensor by its placements, else all if it is replicated.
    """
    index, count = (mesh.rank, mesh.world_size) if replicated else (0, 1)
    if is_distributed(tensor):
        index, count = replica_of(tensor)
    offset, local = offset_of(tensor), local_of(tensor)
    if not local.dim():
        return offset, local
    each = -(-len(local) // count)  # equal numbers of rows, but fewer or none for the last ranks
    first = min(index * each, len(local))
    return (offset[0] + first, *offset[1:]), local[first : first + each]


def lay_out(
    tensors: Mapping[str, torch.Tensor], offsets: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> tuple[bytearray, dict[str, tuple[int, int]]]:
    """The header of a safetensors file, and from which byte to which in the file each tensor is.

    The library would write it too, from copies that take longer than all else of a save.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so that all are aligned
    room = room_for_digests(sum(tensor.nbytes for tensor in tensors.values()))
    about = {**room, "places": json.dumps(offsets), **(metadata or {})}  # `seal` looks for it there
    entries: dict[str, Any] = {"__metadata__": about}
    spans, end, other = {}, 0, {}
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        spans[name] = (begin, end)
        kind, shape = TYPES.get(tensor.dtype), list(tensor.shape)
        if kind is None:
            kind, shape, other[name] = "U8", [*shape, tensor.element_size()], name_of(tensor.dtype)
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}
    if other:
        entries["__metadata__"]["types"] = json.dumps(other)
    text = json.dumps(entries).encode()
    text += b" " * (-(8 + len(text)) % (16 if order and tensors[order[0]].element_size() > 8 else 8))
    header = bytearray(len(text).to_bytes(8, "little") + text)
    return header, {name: (len(header) + begin, len(header) + end) for name, (begin, end) in spans.items()}


@dataclass
class Buffer:
    """Reusable memory for captures: allocating it takes longer than the copy itself."""

    pinned: bool
    """Whether GPUs reach the memory directly (pinned)."""
    node: NodeMemory = field(default_factory=NodeMemory)
    """Memory of the node that captures are written to, as far as it has room."""
    _memory: dict[int, torch.Tensor] = field(default_factory=dict)
    """Memory of this process alone: the last one, by its size."""
    _pinned: dict[int, torch.Tensor] = field(default_factory=dict)
    """Memory of the node that is pinned for GPUs, by its address."""
    _layout: tuple[Any, tuple[bytearray, dict[str, tuple[int, int]]]] | None = None
    """The arguments of the last capture and the result of `lay_out` for them: most captures repeat them."""

    def fill(
        self, tensors: Mapping[str, torch.Tensor], offsets: Mapping[str, Any], metadata: Mapping[str, str]
    ) -> tuple[memoryview, dict[str, torch.Tensor]]:
        """Copy tensors into a file in memory, valid until the next call; returns it and all copies."""
        kinds = [(name, each.dtype, each.shape) for name, each in tensors.items()]
        of = kinds, dict(offsets), dict(metadata)
        if self._layout is None or self._layout[0] != of:
            self._layout = of, lay_out(tensors, offsets, metadata)
        header, spans = self._layout[1]
        size = len(header) + sum(tensor.nbytes for tensor in tensors.values())
        memory = self._room(size)
        memory[: len(header)] = torch.frombuffer(header, dtype=torch.uint8)
        copies = {
            name: memory[begin:end].view(tensors[name].dtype).view(tensors[name].shape)
            for name, (begin, end) in spans.items()
        }
        for name, values in copies.items():
            copy(values, tensors[name])
        return memory.numpy().data, copies

    def _room(self, size: int) -> torch.Tensor:
        if (shared := self.node.room(size)) is not None:
            self._memory.clear()
            memory = torch.frombuffer(shared, dtype=torch.uint8)
            return self._pin(memory) if self.pinned else memory
        if size not in self._memory:
            self._memory.clear()
            room = torch.empty(size + PAGE, dtype=torch.uint8, pin_memory=self.pinned)
            begin = -room.data_ptr() % PAGE
            self._memory[size] = room[begin : begin + size]
        return self._memory[size]

    def _pin(self, memory: torch.Tensor) -> torch.Tensor:
        """Pin memory of the node for GPUs, once; if that fails, copies are slower."""
        for address in [address for address, each in self._pinned.items() if len(each) != len(memory)]:
            torch.cuda.cudart().cudaHostUnregister(address)
            del self._pinned[address]
        if memory.data_ptr() not in self._pinned:
            torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), len(memory), 0)
            self._pinned[memory.data_ptr()] = memory
        return memory


def decode(data: Data) -> dict[str, tuple[Piece, torch.Tensor]]:
    """Read the tensors' pieces in a file of `State.capture` or `TrackedObjects.capture`, as views of it.

    Nothing in it is executed. The library would copy all of them, for seconds per GiB in which it holds
    Python's interpreter lock.
    """
    pieces, _ = read_header(data[: 8 + int.from_bytes(data[:8], "little")])
    return {
        name: (piece, from_bytes(data[piece.begin : piece.end]).view(piece.dtype).view(piece.shape))
        for name, piece in pieces.items()
        if not name.startswith(_GENERATOR)
    }


def _generators(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_generators(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
