"""Looking at checkpoints: list them, verify them, compare two, export the weights.

A place is a run's folder or the URL of its store, which mean its newest whole checkpoint, or one
checkpoint in them, such as `runs/7/checkpoints/step-00000020` or `s3://bucket/runs/7/step-00000020`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard_train.checkpointing.checkpoint import (
    Checkpoint,
    CheckpointStore,
    DamagedError,
    FormatError,
    step_name,
    step_of,
)
from trainyard_train.checkpointing.stores import open_store

if TYPE_CHECKING:
    import torch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 if all is well, 1 if something is damaged or differs, 2 for wrong use."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except (DamagedError, FormatError, OSError) as error:
        sys.stderr.write(f"training: {error}\n")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m training")
    checkpoint = parser.add_subparsers(required=True).add_parser("checkpoint", help="look at checkpoints")
    commands = checkpoint.add_subparsers(required=True)
    for function, paths, text in (
        (_list, ["run"], "list a run's checkpoints"),
        (_verify, ["run"], "read every byte of a run's checkpoints and compare it with the manifests"),
        (_diff, ["one", "other"], "compare two checkpoints, tensor by tensor"),
        (_export, ["checkpoint", "file"], "write the weights as safetensors"),
    ):
        name = function.__name__.strip("_").replace("list", "ls")
        command = commands.add_parser(name, help=text, description=text)
        for path in paths:
            command.add_argument(path, type=Path if path == "file" else str)
        command.set_defaults(command=function)
    return parser


def _list(options: argparse.Namespace) -> int:
    store = _store(options.run)
    _say(f"{'step':>10}  {'samples':>12}  {'ranks':>5}  {'MiB':>10}  saved")
    for step in store.committed():
        try:
            manifest = store.open(step).manifest
        except DamagedError as error:
            _say(f"{step_name(step)}: damaged: {error}")
            continue
        size = sum(entry.size for entry in manifest.files.values()) / 2**20
        saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.created))
        _say(f"{manifest.step:>10}  {manifest.samples:>12}  {manifest.world_size:>5}  {size:>10.2f}  {saved}")
    return 0


def _verify(options: argparse.Namespace) -> int:
    store = _store(options.run)
    damaged = 0
    for step in store.committed():
        try:
            store.open(step).verify()
            _say(f"{step_name(step)}: whole")
        except DamagedError as error:
            damaged += 1
            _say(f"{step_name(step)}: damaged: {error}")
    return 1 if damaged else 0


def _diff(options: argparse.Namespace) -> int:
    from trainyard_train.checkpointing.state import load_tensors

    one, other = load_tensors(_open(options.one)), load_tensors(_open(options.other))
    lines = [_difference(name, one.get(name), other.get(name)) for name in sorted({*one, *other})]
    different = [line for line in lines if line]
    _say("\n".join(different) if different else f"equal bit for bit: {len(lines)} tensors")
    return 1 if different else 0


def _export(options: argparse.Namespace) -> int:
    from safetensors.torch import save_file

    from trainyard_train.checkpointing.state import load_tensors

    tensors = load_tensors(_open(options.checkpoint))
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    draft = options.file.with_name(options.file.name + ".tmp")
    save_file(weights, draft, metadata={"format": "pt"})
    draft.replace(options.file)
    _say(f"{options.file}: {len(weights)} tensors")
    return 0


def _store(run: str) -> CheckpointStore:
    """The store of a run: what its folder holds, or a URL."""
    if "://" in run:
        return open_store(run)
    folder = Path(run) / "checkpoints"
    if not folder.is_dir():
        raise FileNotFoundError(f"{run} is no run: it has no folder named checkpoints")
    return open_store(str(folder))


def _open(place: str) -> Checkpoint:
    parent, _, name = place.rstrip("/").rpartition("/")
    step = step_of(name)
    if step is not None:
        return open_store(parent or ".").open(step)
    newest = _store(place).newest(lambda step, reason: _say(f"passing over {step_name(step)}: {reason}"))
    if newest is None:
        raise FileNotFoundError(f"{place} has no whole checkpoint")
    return newest


def _difference(name: str, one: torch.Tensor | None, other: torch.Tensor | None) -> str:
    """In words; empty if there is none."""
    if one is None or other is None:
        return f"{name}: only in the {'second' if one is None else 'first'}"
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{name}: {one.dtype} {tuple(one.shape)}, {other.dtype} {tuple(other.shape)}"
    if one.equal(other):
        return ""
    return f"{name}: differs by up to {float((one.double() - other.double()).abs().max()):.3g}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
