"""Turning a model, its optimizer and the random generators into files, and back.

Each rank writes the pieces of tensors that it has, with their place in the whole. Where several ranks have
the same piece, as all have under DDP, they cut it along its first dimension and share the writing. So a
checkpoint can be loaded by any number of ranks, in any mesh, and by any strategy: what is in it does not
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

from trainyard_train.checkpointing.checkpoint import Checkpoint, DamagedError, Data
from trainyard_train.optim.optimizer import is_distributed
from trainyard_train.parallelism.mesh import Mesh

_GENERATOR: Final = "generator."
PAGE: Final = 4096
"""Bytes: a capture begins at a multiple, since disks take straight from memory only what does."""
_TYPES: Final = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""As safetensors calls them."""
_KINDS: Final = {name: kind for kind, name in _TYPES.items()}
Offset = tuple[int, ...]
"""Where a piece begins in the whole tensor, in each dimension."""


@dataclass
class Pieces:
    """Parts of tensors, from any number of files."""

    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Of the whole tensors, by name."""
    _parts: dict[str, dict[tuple[Offset, torch.Size], torch.Tensor]] = field(default_factory=dict)

    def add(self, pieces: Mapping[str, tuple[list[int], list[int], torch.Tensor]]) -> None:
        """Take those of one file; what another rank had as well counts once."""
        for name, (shape, place, values) in pieces.items():
            self.shapes[name] = tuple(shape)
            self._parts.setdefault(name, {})[tuple(place), values.shape] = values

    def covers(self, name: str, place: Offset, size: torch.Size) -> bool:
        """Whether all of a region is there."""
        found: int = sum(values.numel() for _, values in self._cuts(name, place, size))
        return found == size.numel()

    def fill(self, name: str, place: Offset, target: torch.Tensor) -> None:
        """Copy into a tensor, which lies at `place` in the whole one, what there is of it."""
        for inside, values in self._cuts(name, place, target.shape):
            target[inside].copy_(values)

    def _cuts(
        self, name: str, place: Offset, size: torch.Size
    ) -> Iterator[tuple[tuple[slice, ...], torch.Tensor]]:
        """What the parts of a tensor have in common with a region, where it is not empty."""
        for (begin, extent), values in self._parts.get(name, {}).items():
            inside, source = [], []
            for region, length, part, part_length in zip(place, size, begin, extent, strict=True):
                start, stop = max(region, part), min(region + length, part + part_length)
                inside.append(slice(start - region, stop - region))
                source.append(slice(start - part, stop - part))
            if all(side.start < side.stop for side in inside):
                yield tuple(inside), values[tuple(source)]


@dataclass(frozen=True)
class State:
    """What a checkpoint holds of a model and its optimizer."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    mesh: Mesh
    _memory: dict[int, torch.Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Of the last capture, by its size: to get as much anew costs more than the copy itself."""
    _copies: dict[str, torch.Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Its parameters and moments; a buffer may well hold an infinity."""

    def capture(self) -> memoryview:
        """A copy of this rank's pieces and generators, as a file, that later steps do not touch.

        It is good until the next capture, which takes its memory.
        """
        tensors, places = {}, {}
        for name, tensor in self._tensors():
            place, tensors[name] = self._own_part(tensor)
            places[name] = (list(tensor.shape), list(place))
        for name, state in _generators(self.mesh.device).items():
            tensors[f"{_GENERATOR}{name}"] = state
        header, spans = _lay_out(tensors, places)
        size = len(header) + sum(tensor.nbytes for tensor in tensors.values())
        if size not in self._memory:
            self._memory.clear()
            pinned = self.mesh.device.type == "cuda"
            room = torch.empty(size + PAGE, dtype=torch.uint8, pin_memory=pinned)
            begin = -room.data_ptr() % PAGE
            self._memory[size] = room[begin : begin + size]
        memory = self._memory[size]
        memory[: len(header)] = torch.frombuffer(header, dtype=torch.uint8)
        copies = {
            name: memory[begin:end].view(tensors[name].dtype).view(tensors[name].shape)
            for name, (begin, end) in spans.items()
        }
        for name, copy in copies.items():
            copy.copy_(tensors[name])
        learned = self._learned()
        self._copies.clear()
        self._copies.update({name: copy for name, copy in copies.items() if name in learned})
        return memory.numpy().data

    def spoiled(self) -> str:
        """What is wrong with the last capture, if it has what is no number; empty if not.

        The loss says so one step later, which is too late: a run would resume from such weights for ever.
        """
        for name, values in self._copies.items():
            # A sum takes a quarter of the time of a look at each, and may only be too large itself.
            if not values.sum().isfinite() and not values.isfinite().all():
                return f"{name} holds what is no number: lower optim.lr, or warm up longer"
        return ""

    def restore(self, checkpoint: Checkpoint, held: Mapping[str, memoryview]) -> None:
        """Put a checkpoint back. A rank that did not exist when it was taken keeps its fresh generators.

        A rank takes its own file first. Where that does not hold all that some rank needs, those that have
        read the others send them to all.

        Args:
            checkpoint: all ranks the same.
            held: what this rank has read of it (see `Checkpoint.readers`).

        Raises:
            DamagedError: the checkpoint lacks a part.
        """
        pieces, own = Pieces(), file_name(self.mesh.rank)
        if own in held:
            _set_generators(self._take(held[own], pieces)["generators"], self.mesh.device)
        lacks = bool(self._missing(pieces)) or own not in held
        if any(self.mesh.gather("lacks", "yes" if lacks else "")):
            for name, reader in checkpoint.readers(self.mesh.world_size).items():
                size = checkpoint.manifest.files[name].size
                data = self.mesh.broadcast_bytes(reader, held.get(name, memoryview(b"")), size)
                if lacks and name != own:
                    self._take(data, pieces)
        if missing := self._missing(pieces):
            raise DamagedError(f"{checkpoint.name} has not all of {missing[0]}")
        with torch.no_grad():
            for name, tensor in self._tensors():
                pieces.fill(name, _place(tensor), _local(tensor))

    def _take(self, data: memoryview, pieces: Pieces) -> dict[str, Any]:
        """Add a file's pieces; returns all that is in it."""
        file = decode(data)
        pieces.add(file["pieces"])
        self._make_slots(pieces)
        return file

    def weights_sha256(self) -> str:
        """A digest of every parameter and buffer: equal if and only if they are equal bit for bit.

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
        """All that is saved, by name, as it lives in the model and the optimizer."""
        for name, tensor in self.model.state_dict().items():
            yield f"model.{name}", tensor
        for name, parameter in self.model.named_parameters():
            for slot, value in self.optimizer.state.get(parameter, {}).items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer.{name}.{slot}", value

    def _learned(self) -> set[str]:
        """Names of all that the optimizer changes, parameters and moments."""
        parameters = {f"model.{name}" for name, _ in self.model.named_parameters()}
        return {
            name
            for name, tensor in self._tensors()
            if tensor.is_floating_point() and (name in parameters or name.startswith("optimizer."))
        }

    def _missing(self, pieces: Pieces) -> list[str]:
        """Names of what is not there as a whole."""
        return [
            name
            for name, tensor in self._tensors()
            if not pieces.covers(name, _place(tensor), _local(tensor).shape)
        ]

    def _make_slots(self, pieces: Pieces) -> None:
        """Give a new optimizer, which has none before its first step, the slots that were saved."""
        parameters = dict(self.model.named_parameters())
        for name, shape in pieces.shapes.items():
            kind, _, rest = name.partition(".")
            of, _, slot = rest.rpartition(".")
            if kind == "optimizer" and of in parameters and slot not in self.optimizer.state[parameters[of]]:
                parameter = parameters[of]
                # An optimizer counts its steps where it updates: beside the weights if it is fused.
                place = parameter.device if self.optimizer.defaults.get("fused") else None
                blank = torch.zeros((), device=place)
                if shape:
                    blank = torch.zeros_like(parameter, requires_grad=False)
                self.optimizer.state[parameter][slot] = blank

    def _own_part(self, tensor: torch.Tensor) -> tuple[Offset, torch.Tensor]:
        """What this rank writes of a tensor: its share of what it has."""
        place, local = _place(tensor), _local(tensor)
        if not local.dim():
            return place, local
        index, count = self._replica(tensor)
        each = -(-len(local) // count)  # as many rows for each, but fewer or none for the last ones
        first = min(index * each, len(local))
        return (place[0] + first, *place[1:]), local[first : first + each]

    def _replica(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Which of how many ranks this is that have the same part of a tensor."""
        if not is_distributed(tensor):
            ranks = self.mesh.world_size // self.mesh.pipeline
            return self.mesh.rank % ranks, ranks
        index, count = 0, 1
        devices = tensor.device_mesh  # type: ignore[attr-defined]
        for dimension, placement in enumerate(tensor.placements):  # type: ignore[attr-defined]
            if placement.is_replicate():
                index = index * devices.size(dimension) + devices.get_local_rank(dimension)
                count *= devices.size(dimension)
        return index, count


def file_name(rank: int) -> str:
    """The file that a rank writes."""
    return f"rank-{rank:05d}.safetensors"


def _lay_out(
    tensors: Mapping[str, torch.Tensor], places: Mapping[str, Any]
) -> tuple[bytearray, dict[str, tuple[int, int]]]:
    """The header of a safetensors file, and from which byte to which in the file each tensor is.

    The library would write it too, from copies of its own, which take longer than all else of a save.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # so that all are aligned
    entries: dict[str, Any] = {"__metadata__": {"places": json.dumps(places)}}
    spans, end = {}, 0
    for name in order:
        begin, end = end, end + tensors[name].nbytes
        spans[name] = (begin, end)
        kind = _TYPES[tensors[name].dtype]
        entries[name] = {"dtype": kind, "shape": list(tensors[name].shape), "data_offsets": [begin, end]}
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    header = bytearray(len(text).to_bytes(8, "little") + text)
    return header, {name: (len(header) + begin, len(header) + end) for name, (begin, end) in spans.items()}


def decode(data: Data) -> dict[str, Any]:
    """Read a file of `State.capture`; nothing in it is executed.

    The tensors are views of it. The library would copy all of them, for seconds per GiB in which no other
    thread comes to its turn.
    """
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:begin]))
    places = json.loads(header.pop("__metadata__")["places"])
    tensors = {name: _view(data, begin, **entry) for name, entry in header.items()}
    return {
        "pieces": {name: (shape, place, tensors[name]) for name, (shape, place) in places.items()},
        "generators": {
            name.removeprefix(_GENERATOR): state
            for name, state in tensors.items()
            if name.startswith(_GENERATOR)
        },
    }


def _view(
    data: Data, begin: int, *, dtype: str, shape: list[int], data_offsets: tuple[int, int]
) -> torch.Tensor:
    """One tensor of a file whose tensors begin at `begin`."""
    kind = _KINDS[dtype]
    first, last = data_offsets
    if first == last:  # of which `frombuffer` makes nothing
        return torch.empty(shape, dtype=kind)
    count = (last - first) // kind.itemsize
    return torch.frombuffer(data, dtype=kind, count=count, offset=begin + first).view(shape)


def load_tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Every tensor of a checkpoint, whole: `model.<name>` and `optimizer.<name>.<slot>`.

    Raises:
        DamagedError: a file is not what the manifest says.
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
        tensors[name] = torch.zeros(shape, dtype=kinds[name])
        pieces.fill(name, (0,) * len(shape), tensors[name])
    return tensors


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local: torch.Tensor = tensor.to_local() if is_distributed(tensor) else tensor  # type: ignore[attr-defined]
    return local


def _place(tensor: torch.Tensor) -> Offset:
    if not is_distributed(tensor):
        return (0,) * tensor.dim()
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    devices, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined]
    return tuple(compute_local_shape_and_global_offset(tensor.shape, devices, placements)[1])


def _generators(device: torch.device) -> dict[str, torch.Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_generators(states: Mapping[str, torch.Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
