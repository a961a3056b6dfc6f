"""`TrackedObjects`: captures the objects that a `Run` tracks as one checkpoint file per rank, compares them
across ranks, and restores them.

DTensors are written as their pieces, and parameters and moments under DDP are divided among the ranks, as in
`state`. State that all ranks take from rank 0 is written by rank 0 only. Every rank writes its copy of all
other values, and compares it with rank 0's in parallel with the training (tensors by their SHA-256).

Values that are equal on all ranks can be loaded by any number of ranks. Values that differ need as many ranks
as before, except for buffers of modules: another number of ranks takes rank 0's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy

from trainyard_train.checkpointing import values as state_values
from trainyard_train.checkpointing.checkpoint import Checkpoint, DamagedError, Manifest
from trainyard_train.checkpointing.finding import MismatchError
from trainyard_train.checkpointing.loading import Header, Load, Targets
from trainyard_train.checkpointing.objects import (
    SHARED,
    Tracked,
    TrackedModule,
    TrackedOptimizer,
    TrackedTensor,
    track,
)
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.checkpointing.state import Buffer, share_of
from trainyard_train.checkpointing.tensor_files import name_of
from trainyard_train.config_base import ConfigError
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.tensors import is_distributed, local_of, offset_of

_NUMBERS: Final = {torch.float64, torch.float32, torch.float16, torch.bfloat16}
Agree = Callable[[str], bool]
"""Returns whether all ranks have the same text; all ranks must call it."""


@dataclass
class _Found:
    """Content of the tracked objects at one moment."""

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """Live tensors, by path."""
    values: dict[str, Any] = field(default_factory=dict)
    """Values that are not a tensor at the top of their object, as JSON, by path."""
    replicated: set[str] = field(default_factory=set)
    """Tensors that are the same on all ranks."""
    of_rank0: set[str] = field(default_factory=set)
    learned: set[str] = field(default_factory=set)
    """Tensors that must be finite numbers."""


@dataclass
class TrackedObjects:
    """The objects that a run tracks, to be captured and restored."""

    mesh: Mesh
    agree: Agree = lambda _: True
    memory: NodeMemory = field(default_factory=NodeMemory)
    """Memory that captures are written to."""
    objects: dict[str, Tracked] = field(default_factory=dict)
    _originals: dict[str, object] = field(default_factory=dict)
    """The objects as they were given, by name."""

    def __post_init__(self) -> None:
        self._buffer = Buffer(self.mesh.device.type == "cuda", self.memory)

    def add(self, name: str, value: object) -> None:
        """Track an object.

        Raises:
            ConfigError: the name is taken, or there is no way to save such an object.
        """
        self.objects[name] = self.wrap(name, value)

    def wrap(self, name: str, value: object) -> Tracked:
        """Return an object as it can be saved and loaded, without tracking it.

        Raises:
            ConfigError: as `add`.
        """
        if name in self.objects:
            raise ConfigError([f"{name}: is tracked already; give the second one another name"])
        if isinstance(value, Tracked):
            return value
        found = track(name, value, self.parameter_names, self._is_tracked)
        self._originals[name] = value
        return found

    def check(self) -> None:
        """Refuse now what cannot be saved, and not when the first checkpoint is due.

        Raises:
            ConfigError: something in it cannot be saved.
        """
        self._read()

    def capture(self, manifest: Manifest, private: Mapping[str, Any]) -> Snapshot:
        """Copy this rank's part into a file in memory, valid until the next call. All ranks must call it.

        Args:
            manifest: of the snapshot.
            private: JSON that this rank alone gets back, such as its random generators.

        Raises:
            ConfigError: something in it cannot be saved.
        """
        with torch.no_grad():
            found = self._read()
            cut = self.agree(json.dumps(sorted(found.replicated)))
            tensors, offsets, owners = {}, {}, {}
            for path, tensor in found.tensors.items():
                if path in found.of_rank0 and not self.mesh.is_rank0:
                    continue
                offset, tensors[path] = share_of(tensor, self.mesh, cut and path in found.replicated)
                offsets[path] = (list(tensor.shape), list(offset))
                if self._may_differ(path, tensor, found, cut):
                    owners[path] = f"{path}@{list(offset)}"
            texts = {"values": json.dumps(found.values), "private": json.dumps(private)}
            memory, copies = self._buffer.fill(tensors, offsets, texts)
        description = {
            **{f"t:{path}": self._entry(tensor) for path, tensor in found.tensors.items()},
            **{
                f"v:{path}": value
                for path, value in found.values.items()
                if self.mesh.is_rank0 or path not in found.of_rank0
            },
            **{f"o:{name}": each.kind for name, each in self.objects.items()},
        }
        learned = {path: values for path, values in copies.items() if path in found.learned}
        compared = {key: copies[path] for path, key in owners.items()}
        return Snapshot(memory, manifest, learned, description, compared)

    def restore(self, checkpoint: Checkpoint, key: str = "restore") -> dict[str, Any] | None:
        """Restore a checkpoint; returns this rank's `private`, None if the rank did not exist then.

        Args:
            checkpoint: all ranks the same.
            key: prefix of keys in the store of the ranks, used once.

        Raises:
            MismatchError: on every rank, if what is tracked does not fit.
            DamagedError: on every rank, if the checkpoint lacks a part, or one was altered; the tensors that
                are tracked are then of no use, all else is as it was.
        """
        saved = checkpoint.manifest.state
        same_world = checkpoint.manifest.world_size == self.mesh.world_size
        found = self._read()
        self._refuse(_changes(self, checkpoint, found, same_world, key), key)
        load = Load(checkpoint, self.mesh, key)
        metadata = load.own_header.metadata if load.own_header and same_world else {}
        values = {**saved["values"]}
        own_values = json.loads(metadata.get("values", "{}"))
        values.update({path: own_values[path] for path in saved["by_rank"] if path in own_values})
        with torch.no_grad():
            targets = self._targets(saved, values, found)
        where: Targets = {name: (offset_of(each), local_of(each).detach()) for name, each in targets.items()}
        load.locate(lambda: where)
        load.fill(where)
        for name, each in self._saved_in(saved).items():
            each.write(dict(_below(name, values, targets)))
        return json.loads(metadata["private"]) if metadata else None

    def _read(self) -> _Found:
        found = _Found()
        modules = [each for each in self.objects.values() if isinstance(each, TrackedModule)]
        parameters = {id(p): each.replicated for each in modules for _, p in each.named_tensors()}
        for name, each in self.objects.items():
            found.of_rank0 |= {_join(name, path) for path in each.of_rank0()}
            moments_of = each.parameters() if isinstance(each, TrackedOptimizer) else {}
            for path, value in each.read().items():
                here: dict[str, torch.Tensor] = {}
                packed = state_values.pack(value, _join(name, path), here)
                if not isinstance(value, torch.Tensor):
                    found.values[_join(name, path)] = packed
                parameter = id(moments_of.get(path, value))
                if parameters.get(parameter):
                    found.replicated |= here.keys()
                if parameter in parameters:
                    found.learned |= {key for key, tensor in here.items() if tensor.dtype in _NUMBERS}
                if twice := found.tensors.keys() & here.keys():
                    raise ConfigError([f"{min(twice)}: two tensors have this path; rename one of their keys"])
                found.tensors.update(here)
        problems = [f"{path}: got {wrong}" for path, each in found.tensors.items() if (wrong := _wrong(each))]
        if problems:
            raise ConfigError(problems)
        return found

    def _saved_in(self, saved: Mapping[str, Any]) -> dict[str, Tracked]:
        """Tracked objects that a checkpoint has: all, unless it was imported."""
        return {name: each for name, each in self.objects.items() if name in saved["objects"]}

    def _is_tracked(self, value: object) -> bool:
        modules = (each.module for each in self.objects.values() if isinstance(each, TrackedModule))
        return any(each is value for each in chain(self._originals.values(), modules))

    def parameter_names(self) -> dict[int, str]:
        """Tracked parameters and tensors by their `id`, in the same order on all ranks."""
        found = {}
        for name, each in self.objects.items():
            if isinstance(each, TrackedModule):
                found.update({id(p): f"{name}.{path}" for path, p in each.named_tensors()})
            if isinstance(each, TrackedTensor):
                found[id(each.tensor)] = f"{name}.{name}"
        return found

    def _may_differ(self, path: str, tensor: torch.Tensor, found: _Found, cut: bool) -> bool:
        """Whether other ranks may have another value of the same name."""
        if is_distributed(tensor):
            return bool(tensor.device_mesh.size() < self.mesh.world_size)  # type: ignore[attr-defined]
        return path not in found.of_rank0 and not (cut and path in found.replicated)

    def _entry(self, tensor: torch.Tensor) -> list[Any]:
        where = "cpu" if tensor.device.type == "cpu" else "device"
        return [name_of(tensor.dtype), list(tensor.shape), where]

    def _refuse(self, problems: Sequence[str], key: str) -> None:
        """Raise on all ranks together, with the same message."""
        problems_of_ranks = [text for text in self.mesh.gather(f"{key}/fits", "\n".join(problems)) if text]
        if problems_of_ranks:
            raise MismatchError(problems_of_ranks[0])

    def _targets(
        self, saved: Mapping[str, Any], values: Mapping[str, Any], found: _Found
    ) -> dict[str, torch.Tensor]:
        """The destination of each tensor that this rank needs: the live one, or a new one."""
        index, targets = saved["tensors"], {}
        for name, each in self._saved_in(saved).items():
            live = {_join(name, path): tensor for path, tensor in each.live().items()}
            moments_of = each.parameters() if isinstance(each, TrackedOptimizer) else {}
            for path in _own_paths(name, values, each, found):
                packed = values.get(path)
                like = moments_of.get(path[len(name) + 1 :])
                for tensor in [path] if packed is None else state_values.paths(packed):
                    like = found.tensors.get(tensor, like)
                    targets[tensor] = live[tensor] if tensor in live else self._blank(index[tensor], like)
        return targets

    def _blank(self, entry: Sequence[Any], like: torch.Tensor | None) -> torch.Tensor:
        """Room for a tensor that was saved, cut over ranks as the one that it belongs to."""
        kind, shape, where = entry
        dtype = getattr(torch, kind)
        if like is not None and is_distributed(like) and list(like.shape) == shape:
            return torch.zeros_like(like, dtype=dtype, requires_grad=False)
        return torch.empty(shape, dtype=dtype, device=self.mesh.device if where == "device" else "cpu")


def _changes(
    state: TrackedObjects, checkpoint: Checkpoint, found: _Found, same_world: bool, key: str
) -> list[str]:
    """Differences between the tracked objects and a checkpoint, as text; empty if none."""
    saved = checkpoint.manifest.state
    if not saved:
        where = f"{checkpoint.name} in {checkpoint.store.where}"
        return [
            f"{where} was written by `python -m trainyard_train.train`; resume with that, or choose another"
            " run_dir"
        ]
    index: Mapping[str, Any] = saved["tensors"]
    changed = []
    for name in sorted({*saved["objects"], *state.objects}):
        before, now = (
            saved["objects"].get(name, "nothing"),
            getattr(state.objects.get(name), "kind", "nothing"),
        )
        if before == "nothing" and saved.get("imported"):
            continue  # it keeps its initial state
        if before != now:
            changed.append(f"{name}: the checkpoint has {before} of this name, the run tracks {now}")
    for path, tensor in found.tensors.items():
        name = path.partition(".")[0]
        if isinstance(state.objects[name], TrackedModule | TrackedTensor) and name in saved["objects"]:
            was, here = _text(index.get(path)), _text(state._entry(tensor))
            if was != here:
                changed.append(f"{path}: the checkpoint has {was}, the model {here}")
    changed += _unrestored(state, index, found, key)
    for name, each in state.objects.items():
        groups = saved["values"].get(f"{name}.param_groups")
        if isinstance(each, TrackedOptimizer) and groups is not None:
            count = len(each.optimizer.param_groups)
            if len(groups) != count:
                changed.append(
                    f"{name}: the checkpoint has {len(groups)} parameter groups, the optimizer {count}"
                )
    if not same_world:
        changed += _bound(state, checkpoint)
    if not changed:
        return []
    where = f"{checkpoint.name} in {checkpoint.store.where}"
    return [f"{where} does not fit; choose another run_dir, or change back:", *changed]


def _text(entry: Sequence[Any] | None) -> str:
    return f"{entry[0]} {tuple(entry[1])}" if entry else "nothing of this name"


def _unrestored(state: TrackedObjects, index: Mapping[str, Any], found: _Found, key: str) -> list[str]:
    """Parameters and buffers of the checkpoint that no rank restores."""
    modules = {name for name, each in state.objects.items() if isinstance(each, TrackedModule)}
    own = [path for path in index if path.partition(".")[0] in modules and path not in found.tensors]
    own = [path for path in own if path not in _ties(state)]  # tied weights are saved once here
    everywhere = set(own)
    for text in state.mesh.gather(f"{key}/lost", json.dumps(own)):
        everywhere &= set(json.loads(text))
    return [f"{path}: only in the checkpoint, {_text(index[path])}" for path in sorted(everywhere)]


def _ties(state: TrackedObjects) -> set[str]:
    """Other names of weights that are saved once."""
    return {
        f"{name}.{path}"
        for name, each in state.objects.items()
        if isinstance(each, TrackedModule)
        for path in each.module.state_dict(keep_vars=True).keys() - each.read().keys()
    }


def _bound(state: TrackedObjects, checkpoint: Checkpoint) -> list[str]:
    """Values that differ by rank, which other ranks cannot take over."""
    modules = {name for name, each in state.objects.items() if isinstance(each, TrackedModule)}
    was, now = checkpoint.manifest.world_size, state.mesh.world_size
    changed = []
    for path in checkpoint.manifest.state["by_rank"]:
        if path.partition(".")[0] in modules and path not in state.parameter_names().values():
            log_line(
                f"{path} differs by rank in {checkpoint.name} of {was} ranks: all {now} ranks load rank 0's"
            )
        else:
            changed += [
                f"{each}: differs by rank; got {now} rank{'' if now == 1 else 's'}; allowed: {was}, as in the"
                " checkpoint"
                for each in (_differing(checkpoint, path) if state.mesh.is_rank0 else [path])
            ]
    return changed


def _differing(checkpoint: Checkpoint, path: str) -> list[str]:
    """Paths of the entries at a path that differ by rank, from the headers of all files; at least the path.

    The manifest has one path for all variables of a loop, so it does not name the one that differs. One rank
    is enough to read them: all ranks raise rank 0's message.
    """
    packed = []
    try:
        for name in checkpoint.manifest.files:
            file = checkpoint.file(name)
            metadata = Header.parse(file, file.header()).metadata
            packed.append(json.loads(metadata.get("values", "{}")).get(path))
    except (DamagedError, OSError):  # the run is refused anyway
        return [path]
    return state_values.differing(packed, path) or [path]


def _own_paths(name: str, values: Mapping[str, Any], each: Tracked, found: _Found) -> list[str]:
    """Paths of the values and bare tensors of an object that this rank is to load."""
    here = [path for path in values if state_values.is_below(name, path)]
    if isinstance(each, TrackedOptimizer):  # in a pipeline, other ranks have the other parameters
        mine = {f"{name}.{path}": path for path in (*each.parameters(), *SHARED)}
        return [path for path in here if path in mine and each.takes(mine[path], values[path])]
    bare = [path for path in found.tensors if path not in here and state_values.is_below(name, path)]
    return [*(bare if isinstance(each, TrackedModule | TrackedTensor) else ()), *here]


def _below(
    name: str, values: Mapping[str, Any], targets: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, Any]]:
    """The values of an object, with tensors, by the path below its name."""
    packed = {path: value for path, value in values.items() if state_values.is_below(name, path)}
    inside = {tensor for value in packed.values() for tensor in state_values.paths(value)}
    for path, value in packed.items():
        if all(tensor in targets for tensor in state_values.paths(value)):
            yield path[len(name) + 1 :], state_values.unpack(value, targets.__getitem__)
    for path, tensor in targets.items():
        if state_values.is_below(name, path) and path not in inside:
            yield path[len(name) + 1 :], tensor


def _join(name: str, path: str) -> str:
    return f"{name}.{path}" if path else name


def _wrong(tensor: torch.Tensor) -> str:
    """Reason why a tensor cannot be saved; empty if it can."""
    if is_lazy(tensor):
        return "a parameter of a lazy module, which has no shape yet; call the module once before the load"
    if is_distributed(tensor):
        partial = any(each.is_partial() for each in tensor.placements)  # type: ignore[attr-defined]
        refusal = "a DTensor with partial sums; allowed: placements Replicate and Shard; redistribute() it"
        return refusal if partial else _wrong(local_of(tensor))
    if tensor.is_meta:
        return "a tensor on the meta device, which has no values; use to_empty(), and initialize it"
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        return (
            f"a {tensor.layout} tensor, {tensor.dtype}; allowed: dense tensors; save its parts, returned by a"
            " state_dict()"
        )
    if hasattr(tensor, "__tensor_flatten__"):
        return f"a {type(tensor).__qualname__}; allowed: plain tensors and DTensors, such as its parts"
    return ""
