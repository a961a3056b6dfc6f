"""`SavedState`: reads a committed checkpoint of any number of ranks from mapped files, one whole tensor at a
time.
"""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from trainyard_train.checkpointing import values as state_values
from trainyard_train.checkpointing.checkpoint import (
    Checkpoint,
    CheckpointStore,
    DamagedError,
    Manifest,
    step_name,
)
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.objects import SHARED
from trainyard_train.checkpointing.state import decode
from trainyard_train.checkpointing.tensor_files import Piece, copy
from trainyard_train.observability.rank_log import log_line


@dataclass
class SavedState:
    """One checkpoint of any number of ranks. Paths begin with the name of a tracked object."""

    where: str
    manifest: Manifest
    kinds: dict[str, torch.dtype] = field(default_factory=dict)
    """Type of each tensor, by path; an optimizer's in the order of its parameters."""
    _pieces: dict[str, dict[Any, tuple[Piece, torch.Tensor]]] = field(default_factory=dict)
    """Pieces of each tensor, by their offset and shape: one that several files have counts once."""

    def add(self, data: memoryview) -> None:
        """Add the content of one file, without a copy."""
        for path, (piece, values) in decode(data).items():
            self.kinds[path] = piece.dtype
            self._pieces.setdefault(path, {})[piece.offset, piece.shape] = piece, values

    @property
    def objects(self) -> Mapping[str, str]:
        """Kind of each tracked object, by its name."""
        found: Mapping[str, str] = self.manifest.state.get("objects", {})
        return found or {"model": "module", "optimizer": "optimizer"}

    @property
    def values(self) -> Mapping[str, Any]:
        """Packed values that are not a tensor at the top of their object, by path."""
        if self.manifest.state:
            found: Mapping[str, Any] = self.manifest.state["values"]
            return found
        packed: dict[str, dict[str, Any]] = {}  # `python -m trainyard_train.train` saves no values
        for path in self.kinds:
            parameter, _, slot = path.rpartition(".")
            if path.startswith("optimizer."):
                packed.setdefault(parameter, {})[slot] = {"$": "tensor", "of": path}
        return packed

    def blank(self, path: str) -> torch.Tensor:
        """Memory for a tensor, which costs none until it is written to."""
        piece, _ = next(iter(self._pieces[path].values()))
        return torch.empty(piece.whole, dtype=piece.dtype)

    def fill(self, path: str, target: torch.Tensor) -> None:
        """Copy a whole tensor. Raises DamagedError: the files lack a part of it."""
        pieces = self._pieces[path].values()
        if sum(values.numel() for _, values in pieces) != target.numel():
            raise DamagedError(f"{self.where} lacks parts of {path}")
        for piece, values in pieces:
            inside = zip(piece.offset, piece.shape, strict=True)
            copy(target[tuple(slice(begin, begin + size) for begin, size in inside)], values)

    def tensor(self, path: str) -> torch.Tensor:
        """Read a whole tensor into newly allocated memory."""
        target = self.blank(path)
        self.fill(path, target)
        return target

    def bare(self, name: str) -> list[str]:
        """Paths of the tensors of an object that are in no value of it."""
        inside = {each for packed in self.values.values() for each in state_values.paths(packed)}
        return [path for path in self.kinds if state_values.is_below(name, path) and path not in inside]

    def tree(self, names: Collection[str], large: Callable[[str], torch.Tensor]) -> dict[str, Any]:
        """The state of some objects as PyTorch's formats nest it.

        Args:
            names: names of the objects.
            large: makes the tensors of modules and optimizers, by path; those of other state are read.
        """
        return {name: self._state_of(name, self.objects[name], large) for name in names}

    def _state_of(self, name: str, kind: str, large: Callable[[str], torch.Tensor]) -> Any:  # noqa: ANN401
        packed = {path: each for path, each in self.values.items() if state_values.is_below(name, path)}
        if kind == "tensor":
            return large(name)
        if kind == "state":
            return state_values.unpack(state_values.without_classes(packed[name]), self.tensor)
        below = {path[len(name) + 1 :]: state_values.unpack(each, large) for path, each in packed.items()}
        if kind == "module":
            return {path[len(name) + 1 :]: large(path) for path in self.bare(name)} | below
        return _optimizer_state(
            below, [path[len(name) + 1 :] for path in self.kinds if state_values.is_below(name, path)]
        )


def _optimizer_state(below: dict[str, Any], order: list[str]) -> dict[str, Any]:
    """State of an optimizer in the form of `torch.distributed.checkpoint.state_dict`: by parameter name.

    Which parameter is in which of several groups is not saved; these have no `params`.
    """
    rest: dict[str, Any] = {key: below.pop(key) for key in SHARED if key in below}
    names = sorted(
        below, key=lambda name: next(i for i, path in enumerate(order) if state_values.is_below(name, path))
    )
    groups = rest.pop("param_groups", None)
    if groups is not None and len(groups) == 1:
        groups = [{**groups[0], "params": names}]
    return {"state": {name: below[name] for name in names}, "param_groups": groups or [], **rest}


@contextmanager
def open_saved(store: CheckpointStore, step: int | None = None) -> Iterator[SavedState]:
    """The newest whole checkpoint, or that of a step, with every byte verified.

    Files of an object store are stored in a temporary folder meanwhile.

    Raises:
        DamagedError: the given step is damaged.
        FileNotFoundError: there is no whole checkpoint.
    """
    found: list[SavedState] = []
    with tempfile.TemporaryDirectory(prefix="trainyard-") as scratch:

        def read(checkpoint: Checkpoint) -> None:
            found.append(_map(checkpoint, Path(scratch)))

        if step is None:
            store.newest(lambda step, why: log_line(f"skipping {step_name(step)}: {why}"), read)
        else:
            read(store.open(step))
        if not found:
            raise FileNotFoundError(f"{store.where} has no intact checkpoint")
        yield found[0]


def _map(checkpoint: Checkpoint, scratch: Path) -> SavedState:
    found = SavedState(f"{checkpoint.name} in {checkpoint.store.where}", checkpoint.manifest)
    # Rank 0's file last: its values replace those of other ranks under the same path.
    for name in sorted(checkpoint.manifest.files, reverse=True):
        found.add(_mapped(checkpoint, name, scratch))
    return found


def _mapped(checkpoint: Checkpoint, name: str, scratch: Path) -> memoryview:
    """The content of a file, verified, in the page cache alone."""
    store, stored = checkpoint.store, checkpoint.file(name)
    if isinstance(store, FolderStore):
        checkpoint.verify([name])
        path = store.root / stored.path
    else:
        path = scratch / name
        with path.open("wb") as copied:
            copied.writelines(block for _, block in stored.blocks())
    try:
        with path.open("rb") as file:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (FileNotFoundError, ValueError) as error:  # ValueError: it is empty
        raise DamagedError(f"{name} is missing or empty") from error
