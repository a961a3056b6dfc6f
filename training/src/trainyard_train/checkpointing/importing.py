"""Imports a checkpoint of another format as the first checkpoint of a run: all of its objects or a selection,
renamed where the caller asks for it.

A run that already has checkpoints is refused.
"""

from __future__ import annotations

import json
import mmap
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from trainyard_train.checkpointing import values as state_values
from trainyard_train.checkpointing.checkpoint import CheckpointStore, Manifest
from trainyard_train.checkpointing.foreign import ForeignCheckpoint, read
from trainyard_train.checkpointing.state import lay_out
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.checkpointing.tensor_files import copy, file_name, from_bytes, name_of
from trainyard_train.config_base import ConfigError


def import_checkpoint(
    source: str | Path,
    run_dir: str | Path,
    *,
    store: str = "",
    name: str = "model",
    renames: Mapping[str, str] | None = None,
    only: Sequence[str] = (),
) -> dict[str, str]:
    """Import the first checkpoint of a run. Tracked objects that it lacks keep their initial state.

    Args:
        source: a file of `torch.save`, a folder of `torch.distributed.checkpoint`, a file of safetensors, or
            a folder of these with their index.
        run_dir: folder of the run, in which nothing may be saved yet.
        store: URL of the run's store, if it has one.
        name: under which the run tracks the module, if the source is one module's state.
        renames: the beginning of a name, in whole parts, and the run's name for it.
        only: names of tracked objects, as the run has them; empty: all.

    Returns:
        kind of each object, by its name: module, optimizer, state or tensor.

    Raises:
        ConfigError: the source cannot be read, something in it cannot be saved, or the run has checkpoints;
            nothing was written.
    """
    location = store or str(Path(run_dir) / "checkpoints")
    target = open_store(location)
    if target.committed():
        raise ConfigError([f"{location}: has checkpoints already; choose another run_dir"])
    found = read(Path(source))
    state = {name: found.state} if _kind(found.state) == "module" else found.state
    if not isinstance(state, Mapping) or not all(isinstance(key, str) for key in state):
        raise ConfigError([f"{source}: got a {type(state).__name__}; allowed: a dict of the objects' states"])
    objects = _Objects(dict(renames or {}), frozenset(only))
    for key, value in state.items():
        objects.add(key, value)
    objects.check(source)
    if not store:
        Path(run_dir).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=None if store else run_dir) as scratch:
        _commit(target, objects, found, scratch.fileno())
    return objects.kinds


@dataclass
class _Objects:
    """Objects of a run, collected from a source."""

    renames: dict[str, str]
    only: frozenset[str]
    kinds: dict[str, str] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """Tensors of the source, by path."""
    problems: list[str] = field(default_factory=list)

    def add(self, key: str, value: Any) -> None:  # noqa: ANN401
        """Take one object of the source."""
        kind = _kind(value)
        try:
            parts = list(_parts(key, kind, value))
        except ConfigError as error:
            if not self.only or self._renamed(key) in self.only:
                self.problems += error.problems
            return
        for path, part in parts:
            renamed = self._renamed(path)
            name = renamed.partition(".")[0]
            if self.only and name not in self.only:
                continue
            if self.kinds.setdefault(name, kind) != kind:
                self.problems.append(f"{name}: got a {kind} beside a {self.kinds[name]}; rename one of them")
            self._put(renamed, part, is_bare=kind in {"module", "tensor"})

    def check(self, source: str | Path) -> None:
        """Refuse what cannot be saved, all together.

        Raises:
            ConfigError: objects cannot be saved; the message has all problems.
        """
        absent = [
            f"only: got {name}; allowed: a name that {source} has"
            for name in sorted(self.only - self.kinds.keys())
        ]
        if not self.kinds and not absent:
            absent = [f"{source}: is empty"]
        if self.problems or absent:
            raise ConfigError([*self.problems, *absent])

    def _put(self, path: str, part: Any, is_bare: bool) -> None:  # noqa: ANN401
        try:
            if is_bare and isinstance(part, torch.Tensor):
                state_values.pack(part, path, self.tensors)
            elif path in self.values:
                raise ConfigError([f"{path}: two values have this path; rename one of them"])
            else:
                self.values[path] = state_values.pack(part, path, self.tensors)
        except ConfigError as error:
            self.problems += error.problems

    def _renamed(self, path: str) -> str:
        """Rename a path by the longest prefix that fits."""
        for begin in sorted(self.renames, key=len, reverse=True):
            if path == begin or path.startswith(f"{begin}."):
                return (self.renames[begin] + path[len(begin) :]).lstrip(".")
        return path


def _kind(value: Any) -> str:  # noqa: ANN401
    """Kind of an object of a source, by its structure."""
    if isinstance(value, torch.Tensor):
        return "tensor"
    if isinstance(value, Mapping) and {"state", "param_groups"} <= value.keys():
        return "optimizer"
    if isinstance(value, Mapping) and any(isinstance(each, torch.Tensor) for each in value.values()):
        rest = (key for key, each in value.items() if not isinstance(each, torch.Tensor))
        if all(isinstance(key, str) for key in value) and all(key.endswith("_extra_state") for key in rest):
            return "module"
    return "state"


def _parts(key: str, kind: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401
    """Paths of an object's parts, as `TrackedObjects` has them, and the parts."""
    if kind == "module":
        yield from ((f"{key}.{path}", part) for path, part in _without_ties(value))
    elif kind == "optimizer":
        names = _names(key, value)
        yield from ((f"{key}.{names[number]}", slots) for number, slots in value["state"].items())
        groups = [
            {k: each for k, each in group.items() if k not in {"params", "param_names"}}
            for group in value["param_groups"]
        ]
        yield f"{key}.param_groups", groups
        if "shared_state" in value:
            yield f"{key}.shared_state", value["shared_state"]
    else:
        yield key, value


def _without_ties(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """State of a module with tied weights stored once, as far as the source shows ties."""
    seen = set()
    for path, part in state.items():
        if isinstance(part, torch.Tensor) and not part.is_meta and part.numel():
            memory = (part.data_ptr(), part.shape, part.stride(), part.dtype)
            if memory in seen:
                continue
            seen.add(memory)
        yield path, part


def _names(key: str, optimizer: Mapping[str, Any]) -> dict[Any, str]:
    """Name of each parameter that an optimizer has state of."""
    names: dict[Any, str] = {}
    for group in optimizer["param_groups"]:
        names |= dict(zip(group.get("params", ()), group.get("param_names", ()), strict=False))
    names = {number: names.get(number, number) for number in optimizer["state"]}
    if unnamed := [number for number, name in names.items() if not isinstance(name, str)]:
        problem = (
            f"{key}: knows parameters by numbers ({unnamed[0]}, …); allowed: by names, as of"
            " torch.distributed.checkpoint.state_dict.get_optimizer_state_dict() or of an optimizer of"
            " named_parameters(); or leave it out"
        )
        raise ConfigError([problem])
    return names


def _commit(store: CheckpointStore, objects: _Objects, source: ForeignCheckpoint, scratch: int) -> None:
    """Write all as the file of one rank, through a mapping of an empty file, and make that a checkpoint."""
    offsets = {path: (list(tensor.shape), [0] * tensor.dim()) for path, tensor in objects.tensors.items()}
    header, spans = lay_out(
        objects.tensors, offsets, {"values": json.dumps(objects.values), "private": json.dumps(None)}
    )
    size = max((end for _, end in spans.values()), default=len(header))
    with open(scratch, "r+b", closefd=False) as file:
        file.truncate(size)
        memory = mmap.mmap(scratch, size)
    memory[: len(header)] = bytes(header)
    later = []
    for path, tensor in objects.tensors.items():
        begin, end = spans[path]
        target = from_bytes(memoryview(memory)[begin:end]).view(tensor.dtype).view(tensor.shape)
        if tensor.is_meta:
            later.append((tensor, target))
        else:
            copy(target, tensor)
    source.copy(later)
    position = objects.values.get("run")  # of a source that was exported from a run
    step = int(position.get("steps", 0)) if isinstance(position, dict) else 0
    staged = store.begin(step)
    try:
        entry = store.write(staged, file_name(0), memoryview(memory))
        store.commit(staged, _manifest(step, objects, entry))
    except BaseException:
        store.discard(staged)
        raise
    store.clean_up([step])


def _manifest(step: int, objects: _Objects, entry: Any) -> Manifest:  # noqa: ANN401
    index = {
        path: [name_of(tensor.dtype), list(tensor.shape), "device" if tensor.dim() else "cpu"]
        for path, tensor in objects.tensors.items()
    }
    state = {
        "tensors": index,
        "values": objects.values,
        "objects": objects.kinds,
        "by_rank": [],
        "imported": True,
    }
    mesh = {"data": 1}
    return Manifest(step, 0, 1, mesh, {}, {}, {file_name(0): entry}, state=state)
