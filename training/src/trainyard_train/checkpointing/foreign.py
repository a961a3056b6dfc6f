"""Reads checkpoints of other formats: `torch.distributed.checkpoint`, `torch.save`, Hugging Face's
safetensors.

Tensors are not copied until they are used. Pickles are read with a list of allowed names, so that nothing in
them is executed.
"""

from __future__ import annotations

import io
import json
import pickle
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from trainyard_train.checkpointing.tensor_files import copy
from trainyard_train.config_base import ConfigError

Pair = tuple[torch.Tensor, torch.Tensor]
"""A tensor of the source, and the tensor that it is copied to."""
_ALLOWED: Final = "a file of torch.save, a folder of torch.distributed.checkpoint, or safetensors"
_CLASSES: Final = {
    "builtins": {"dict", "list", "set", "tuple"},
    "collections": {"OrderedDict"},
    "pathlib": {"PosixPath", "PurePosixPath"},
    "pathlib._local": {"PosixPath", "PurePosixPath"},
    "torch": {"Size"},
    "torch._utils": {"_rebuild_layout"},
    "torch.serialization": {"_get_layout"},
    "torch.distributed.checkpoint.filesystem": {"_StorageInfo", "_StoragePrefix"},
    "torch.distributed.checkpoint.metadata": {
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "Metadata",
        "MetadataIndex",
        "StorageMeta",
        "TensorProperties",
        "TensorStorageMetadata",
        "_MEM_FORMAT_ENCODING",
    },
}
"""Classes that the `.metadata` of DCP may name, besides number types (`torch.float32`)."""


@dataclass(frozen=True)
class ForeignCheckpoint:
    """State that was read from a file or folder of another format."""

    state: Any
    """The state with its original nesting; tensors may be on the meta device."""
    copy: Callable[[Sequence[Pair]], None]
    """Copies the source's tensor of each pair into the second one."""


def read(path: Path) -> ForeignCheckpoint:
    """Read a foreign checkpoint.

    Raises:
        ConfigError: the format is unknown, or cannot be read without executing something.
    """
    if (path / ".metadata").is_file():
        return _read_dcp(path)
    if path.suffix == ".safetensors" or (path.is_dir() and any(path.glob("*.safetensors"))):
        return _read_safetensors(path)
    if path.is_file():
        return _read_torch(path)
    what = "a folder of another format" if path.is_dir() else "a path that does not exist"
    raise ConfigError([f"{path}: got {what}; allowed: {_ALLOWED}"])


def _read_safetensors(path: Path) -> ForeignCheckpoint:
    from safetensors import SafetensorError, safe_open

    names: dict[int, tuple[Path, str]] = {}
    state: dict[str, torch.Tensor] = {}
    for file in _files_of(path):
        try:
            with safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118 -- it is no mapping
                    state[name] = _like(opened.get_slice(name), file, opened, name)
                    names[id(state[name])] = (file, name)
        except (SafetensorError, OSError) as error:
            raise ConfigError([f"{file}: cannot be read as safetensors: {error}"]) from error

    def fill(pairs: Sequence[Pair]) -> None:
        by_file: dict[Path, list[tuple[str, torch.Tensor]]] = {}
        for tensor, target in pairs:
            file, name = names[id(tensor)]
            by_file.setdefault(file, []).append((name, target))
        for file, wanted in by_file.items():
            with safe_open(file, "pt") as opened:
                for name, target in wanted:
                    copy(target, opened.get_tensor(name))

    return ForeignCheckpoint(state, fill)


def _like(part: Any, file: Path, opened: Any, name: str) -> torch.Tensor:  # noqa: ANN401 (of a Rust library)
    """Create a tensor of the same type and shape on the meta device."""
    shape = part.get_shape()
    kind = part[:0].dtype if shape else opened.get_tensor(name).dtype
    return torch.empty(shape, dtype=kind, device="meta")


def _files_of(path: Path) -> list[Path]:
    """Find the files of a checkpoint: a single file, the only file of a folder, or those of its index."""
    if path.is_file():
        return [path]
    index = path / "model.safetensors.index.json"
    if not index.exists():
        files = sorted(path.glob("*.safetensors"))
        if len(files) > 1:
            raise ConfigError([f"{path}: has {len(files)} safetensors files but no {index.name}; add it"])
        return files
    try:
        weight_map: Mapping[str, str] = json.loads(index.read_text())["weight_map"]
        files = [path / name for name in sorted(set(weight_map.values()))]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError([f"{index}: cannot be read: {error!r}"]) from error
    if missing := [f"{file}: is missing, and {index.name} names it" for file in files if not file.is_file()]:
        raise ConfigError(missing)
    return files


def _read_torch(file: Path) -> ForeignCheckpoint:
    try:
        state = torch.load(file, map_location="cpu", mmap=zipfile.is_zipfile(file), weights_only=True)
    except pickle.UnpicklingError as error:
        first = str(error).partition("\n")[0]
        problem = (
            f"{file}: cannot be read without executing code from it: {first}; save its state_dict() instead"
        )
        raise ConfigError([problem]) from error
    except (RuntimeError, ValueError, EOFError) as error:
        raise ConfigError([f"{file}: cannot be read: {error}; allowed: {_ALLOWED}"]) from error
    return ForeignCheckpoint(state, _copy_each)


def _copy_each(pairs: Sequence[Pair]) -> None:
    for tensor, target in pairs:
        copy(target, tensor)


def _read_dcp(folder: Path) -> ForeignCheckpoint:
    from torch.distributed.checkpoint import CheckpointException, FileSystemReader, Metadata, load
    from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.planner import ReadItem

    class ImportReader(FileSystemReader):
        """Takes the metadata that were read with a list of allowed classes."""

        def read_metadata(self, *_: Any, **__: Any) -> Metadata:  # noqa: ANN401
            return metadata

    class ImportPlanner(DefaultLoadPlanner):
        """Reads values other than tensors with `weights_only`, which executes nothing."""

        def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
            self.original_state_dict[read_item.dest_index.fqn] = torch.load(value, weights_only=True)

    metadata: Metadata = _metadata_of(folder)
    flat: dict[str, Any] = {}
    names: dict[int, str] = {}
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            flat[name] = torch.empty(entry.size, dtype=entry.properties.dtype, device="meta")
            names[id(flat[name])] = name
    values = {name: None for name in metadata.state_dict_metadata if name not in flat}

    def fetch(state: dict[str, Any]) -> None:
        planner = ImportPlanner(flatten_state_dict=False)
        try:
            with warnings.catch_warnings(category=UserWarning, action="ignore"):  # no group exists
                load(state, storage_reader=ImportReader(folder), planner=planner, no_dist=True)
        except CheckpointException as error:
            raise ConfigError([f"{folder}: cannot be read: {first_failure(error)}"]) from error

    if values:
        fetch(values)
    state = (
        unflatten_state_dict(flat | values, metadata.planner_data) if metadata.planner_data else flat | values
    )
    return ForeignCheckpoint(
        state, lambda pairs: fetch({names[id(tensor)]: target for tensor, target in pairs})
    )


def first_failure(error: Any) -> str:  # noqa: ANN401 (DCP's CheckpointException, slow to import)
    """The first failure, in a line."""
    cause: BaseException = next(iter(error.failures.values()))[0]
    return f"{type(cause).__name__}: {cause}".partition("\n")[0]


def _metadata_of(folder: Path) -> Any:  # noqa: ANN401 (DCP's Metadata, slow to import)
    from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

    try:
        with (folder / ".metadata").open("rb") as file:
            found = _Unpickler(file).load()
    except (pickle.UnpicklingError, EOFError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise ConfigError([f"{folder / '.metadata'}: {error}"]) from error
    if not isinstance(found, Metadata):
        raise ConfigError([f"{folder / '.metadata'}: got a {type(found).__name__}; allowed: DCP's Metadata"])
    if getattr(found, "storage_meta", None) is None:
        found.storage_meta = StorageMeta()
    return found


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401
        is_kind = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if is_kind or name in _CLASSES.get(module, ()):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"names {module}.{name}, which DCP does not write there; not read")
