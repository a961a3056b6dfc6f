"""`State`: captures a model, its optimizer and the random generators as one checkpoint file per rank, and
restores them under any layout.

Each rank writes the pieces of tensors that it has, with their offset in the whole. Where several ranks have
the same piece, as all have under DDP, they cut it along its first dimension and share the writing. So a
checkpoint can be loaded by any number of ranks, in any mesh, and by any strategy: its content does not
depend on them. PyTorch's own distributed checkpoints would do this as well; importing them alone takes
longer than all of a restart does here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
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
    as_bytes,
    common,
    copy,
    from_bytes,
    name_of,
    read_header,
    slices,
)
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.tensors import is_distributed, local_of, offset_of

_GENERATOR: Final = "generator."
PAGE: Final = 4096
"""Bytes: a capture begins at a multiple, since direct writes to a disk need aligned memory."""


@dataclass
class Pieces:
    """Parts of tensors, from any number of files."""

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of the whole tensors, by name."""
    _parts: dict[str, dict[tuple[Offset, torch.Size], torch.Tensor]] = field(default_factory=dict)

    def add(self, pieces: Mapping[str, tuple[list[int], list[int], torch.Tensor]]) -> None:
        """Add the pieces of one file; a piece that was added already counts once."""
        for name, (shape, offset, values) in pieces.items():
            self.shapes[name] = tuple(shape)
            self._parts.setdefault(name, {})[tuple(offset), values.shape] = values

    def covers(self, name: str, offset: Offset, size: torch.Size) -> bool:
        """Whether the pieces cover a whole region."""
        found: int = sum(values.numel() for _, values in self._cuts(name, offset, size))
        return found == size.numel()

    def fill(self, name: str, offset: Offset, target: torch.Tensor) -> None:
        """Copy the known pieces into a tensor that lies at `offset` in the whole one."""
        for inside, values in self._cuts(name, offset, target.shape):
            copy(target[inside], values)

    def _cuts(
        self, name: str, offset: Offset, size: torch.Size
    ) -> Iterator[tuple[tuple[slice, ...], torch.Tensor]]:
        """Intersections of a tensor's parts with a region, without the empty ones."""
        for (begin, extent), values in self._parts.get(name, {}).items():
            shared = common(offset, size, begin, extent)
            if all(low < high for low, high in shared):
                yield slices(shared, offset), values[slices(shared, begin)]


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
            offset, tensors[name] = self._own_part(tensor)
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
        lines = set()
        for name, tensor in self.model.state_dict().items():
            whole = tensor.full_tensor() if is_distributed(tensor) else tensor
            whole = whole.detach().cpu().contiguous()
            digest = hashlib.sha256(whole.flatten().view(torch.uint8).numpy().tobytes()).hexdigest()
            lines.add(f"{name} {whole.dtype} {tuple(whole.shape)} {digest}\n")
        if self.mesh.pipeline > 1:
            lines = set("".join(self.mesh.gather("weights", "".join(lines))).splitlines(keepends=True))
        return hashlib.sha256("".join(sorted(lines)).encode()).hexdigest()

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

    def _own_part(self, tensor: torch.Tensor) -> tuple[Offset, torch.Tensor]:
        """The share of this rank's part of a tensor that it writes."""
        if is_distributed(tensor):
            return share_of(tensor, *replica_of(tensor))
        ranks = self.mesh.world_size // self.mesh.pipeline
        return share_of(tensor, self.mesh.rank % ranks, ranks)


def share_of(tensor: torch.Tensor, index: int, count: int) -> tuple[Offset, torch.Tensor]:
    """The share of a tensor's part that one of several ranks writes which have that part, with its offset in
    the whole.

    Args:
        tensor: the part that these ranks have.
        index: index of this rank among them.
        count: number of these ranks.
    """
    offset, local = offset_of(tensor), local_of(tensor)
    if not local.dim():
        return offset, local
    each = -(-len(local) // count)  # equal numbers of rows, but fewer or none for the last ranks
    first = min(index * each, len(local))
    return (offset[0] + first, *offset[1:]), local[first : first + each]


def replica_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Index of this rank among the ranks that have the same part of a DTensor, and their number."""
    index, count = 0, 1
    devices = tensor.device_mesh  # type: ignore[attr-defined]
    for dimension, placement in enumerate(tensor.placements):  # type: ignore[attr-defined]
        if placement.is_replicate():
            index = index * devices.size(dimension) + devices.get_local_rank(dimension)
            count *= devices.size(dimension)
    return index, count


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


def decode(data: Data) -> dict[str, Any]:
    """Read a file of `State.capture` or `TrackedObjects.capture`; nothing in it is executed.

    The tensors are views of it. The library would copy all of them, for seconds per GiB in which it
    holds Python's interpreter lock.
    """
    begin = 8 + int.from_bytes(data[:8], "little")
    found, metadata = read_header(data[:begin])
    tensors = {
        name: from_bytes(data[piece.begin : piece.end]).view(piece.dtype).view(piece.shape)
        for name, piece in found.items()
    }
    return {
        "pieces": {
            name: (piece.whole, piece.offset, tensors[name])
            for name, piece in found.items()
            if not name.startswith(_GENERATOR)
        },
        "generators": {
            name.removeprefix(_GENERATOR): state
            for name, state in tensors.items()
            if name.startswith(_GENERATOR)
        },
        "metadata": metadata,
    }


def load_tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint, whole: `model.<name>` and `optimizer.<name>.<slot>`.

    Raises:
        DamagedError: a file differs from the manifest.
    """
    return join(decode(checkpoint.read(name)) for name in sorted(checkpoint.manifest.files))


def join(files: Iterable[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    """Every tensor whole, from what all ranks captured."""
    pieces, kinds = Pieces(), {}
    for file in files:
        pieces.add(file["pieces"])
        kinds.update({name: values.dtype for name, (_, _, values) in file["pieces"].items()})
    tensors = {}
    for name, shape in pieces.shapes.items():
        tensors[name] = torch.empty(shape, dtype=kinds[name])
        as_bytes(tensors[name]).zero_()
        pieces.fill(name, (0,) * len(shape), tensors[name])
    return tensors


def _generators(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_generators(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
