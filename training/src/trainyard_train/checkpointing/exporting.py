"""Exports checkpoints to other formats: `torch.distributed.checkpoint`, `torch.save`, Hugging Face's
safetensors.

No export holds the whole state in memory: DCP writes one tensor at a time, and safetensors one file.
`torch.save` writes a file without the tensors' data, which are then copied into a mapping of the file.
"""

from __future__ import annotations

import json
import mmap
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

from trainyard_train.checkpointing.foreign import first_failure
from trainyard_train.checkpointing.saved import SavedState, open_saved
from trainyard_train.checkpointing.stores import find_checkpoint
from trainyard_train.checkpointing.tensor_files import TYPES, copy
from trainyard_train.config_base import ConfigError

SHARD_BYTES: Final = 5 * 10**9
"""Maximum bytes of a safetensors file, the default of
`huggingface_hub.split_torch_state_dict_into_shards`."""
INDEX: Final = "model.safetensors.index.json"


def export_checkpoint(
    run: str | Path,
    to: str,
    out: str | Path,
    *,
    only: Sequence[str] = (),
    shard_bytes: int = SHARD_BYTES,
) -> list[str]:
    """Write a run's newest whole checkpoint, or one checkpoint of it, in another format.

    Args:
        run: folder of the run or URL of its store, or one checkpoint in them.
        to: `hf`, a folder of safetensors; `dcp`, a folder; `torch`, a file.
        out: a name that is not taken; it appears when all is written.
        only: names of tracked objects; empty: the module for `hf`, all for the others.
        shard_bytes: maximum bytes of a file of `hf`, if no tensor is larger.

    Returns:
        the names of the objects that were written.

    Raises:
        ConfigError: the format cannot hold something, or a name is wrong; nothing was written.
        DamagedError: the checkpoint is damaged.
        FileNotFoundError: the run has no whole checkpoint.
    """
    if to not in _FORMATS:
        raise ConfigError([f"to: got {to!r}; allowed: {', '.join(_FORMATS)}"])
    store, step = find_checkpoint(str(run))
    with open_saved(store, step) as saved:
        names = _chosen(saved, to, only)
        with _renamed_when_complete(Path(out)) as staged:
            _FORMATS[to](saved, names, staged, shard_bytes)
    return names


def _chosen(saved: SavedState, to: str, only: Sequence[str]) -> list[str]:
    """The objects to write."""
    modules = [name for name, kind in saved.objects.items() if kind == "module"]
    names = list(only) or (modules if to == "hf" else sorted(saved.objects))
    problems = [
        f"only: got {name!r}; allowed: {', '.join(sorted(saved.objects))}"
        for name in names
        if name not in saved.objects
    ]
    if to == "hf" and not problems:
        problems = _unfit_for_safetensors(saved, names, modules)
    by_rank = saved.manifest.state.get("by_rank", [])
    problems += [
        f"{path}: differs by rank, and an export has one value; exclude it by only=[…] (--only NAME)"
        for path in by_rank
        if path.partition(".")[0] in set(names) - set(modules)
    ]
    if problems:
        raise ConfigError(problems)
    return names


def _unfit_for_safetensors(saved: SavedState, names: list[str], modules: list[str]) -> list[str]:
    if len(names) != 1 or names[0] not in modules:
        got = ", ".join(f"{name} ({saved.objects[name]})" for name in names) or "no module"
        return [f"only: got {got}; allowed with hf: one module of {', '.join(modules) or 'none'}"]
    problems = [
        f"{path}: is not a tensor, and safetensors stores only tensors; use --to torch or dcp"
        for path in saved.values
        if path.startswith(f"{names[0]}.")
    ]
    return problems + [
        f"{path}: got {str(saved.kinds[path]).removeprefix('torch.')}, which safetensors cannot store;"
        " use --to torch or dcp"
        for path in saved.bare(names[0])
        if saved.kinds[path] not in TYPES
    ]


@contextmanager
def _renamed_when_complete(out: Path) -> Iterator[Path]:
    """Yield a temporary path beside `out`, renamed to `out` at the end and deleted after an error."""
    if out.exists():
        raise ConfigError([f"{out}: exists already; remove it, or choose another name"])
    if not out.absolute().parent.is_dir():
        raise ConfigError([f"{out}: the folder {out.absolute().parent} does not exist; create it first"])
    staged = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield staged
        for path in (*staged.rglob("*"), staged, out.absolute().parent):
            _sync(path)
        staged.rename(out)
        _sync(out.absolute().parent)
    finally:
        if staged.is_dir():
            shutil.rmtree(staged)
        staged.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_safetensors(saved: SavedState, names: list[str], staged: Path, shard_bytes: int) -> None:
    from safetensors.torch import save_file

    (name,) = names
    shards = _shards({path: saved.blank(path).nbytes for path in saved.bare(name)}, shard_bytes)
    staged.mkdir()
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file = (
            f"model-{number:05d}-of-{len(shards):05d}.safetensors" if len(shards) > 1 else "model.safetensors"
        )
        tensors = {path[len(name) + 1 :]: saved.tensor(path) for path in shard}
        save_file(tensors, staged / file, metadata={"format": "pt"})
        weight_map.update(dict.fromkeys(tensors, file))
    if len(shards) > 1:
        total = sum(saved.blank(path).nbytes for shard in shards for path in shard)
        index = {"metadata": {"total_size": total}, "weight_map": weight_map}
        (staged / INDEX).write_text(json.dumps(index, indent=2, sort_keys=True) + "\n")


def _shards(sizes: dict[str, int], limit: int) -> list[list[str]]:
    """Tensors in their order, cut where a file would become larger than the limit."""
    shards: list[list[str]] = [[]]
    size = 0
    for path, bytes_ in sizes.items():
        if shards[-1] and size + bytes_ > limit:
            shards.append([])
            size = 0
        shards[-1].append(path)
        size += bytes_
    return shards


def _to_dcp(saved: SavedState, names: list[str], staged: Path, _: int) -> None:
    from torch.distributed.checkpoint import CheckpointException, FileSystemWriter, save
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.metadata import MetadataIndex

    blanks = _Blanks(saved)

    class ExportPlanner(DefaultSavePlanner):
        """Reads a tensor when it is written."""

        def lookup_object(self, index: MetadataIndex) -> Any:  # noqa: ANN401
            found = super().lookup_object(index)
            path = blanks.paths.get(id(found))
            return found if path is None else saved.tensor(path)

    state = saved.tree(names, blanks.make)
    # A file for each tensor, since the writer holds all of a file until its end; we flush them ourselves.
    writer = FileSystemWriter(staged, single_file_per_rank=False, sync_files=False)
    try:
        with warnings.catch_warnings(category=UserWarning, action="ignore"):  # no group exists
            save(state, storage_writer=writer, planner=ExportPlanner(), no_dist=True)
    except CheckpointException as error:
        raise OSError(f"{staged.name}: {first_failure(error)}") from error


def _to_torch(saved: SavedState, names: list[str], staged: Path, _: int) -> None:
    from torch.serialization import set_default_mmap_options, skip_data
    from torch.utils._pytree import tree_leaves

    blanks = _Blanks(saved)
    state = saved.tree(names, blanks.make)
    with skip_data():
        torch.save(state, staged)
    with set_default_mmap_options(mmap.MAP_SHARED):
        written = torch.load(staged, mmap=True, weights_only=False)  # our own file, just written
    for blank, target in zip(tree_leaves(state), tree_leaves(written), strict=True):
        if isinstance(blank, torch.Tensor):
            path = blanks.paths.get(id(blank))
            copy(target, blank) if path is None else saved.fill(path, target)


class _Blanks:
    """Tensors that are filled when they are written, and what they are of."""

    def __init__(self, saved: SavedState) -> None:
        self._saved, self._made = saved, []  # type: ignore[var-annotated]
        self.paths: dict[int, str] = {}

    def make(self, path: str) -> torch.Tensor:
        blank = self._saved.blank(path)
        self._made.append(blank)  # so that no other object gets its id
        self.paths[id(blank)] = path
        return blank


_FORMATS: Final[dict[str, Callable[[SavedState, list[str], Path, int], None]]] = {
    "hf": _to_safetensors,
    "dcp": _to_dcp,
    "torch": _to_torch,
}
