"""`python -m trainyard_train checkpoint`: lists, verifies and compares checkpoints, and exports weights.

`ls` and `verify` take a run: its folder, or the URL of its store. `diff` and `export` also take a single
checkpoint, such as `runs/7/checkpoints/step-00000020` or `s3://bucket/runs/7/step-00000020`; of a run they
use the newest intact checkpoint.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard_train.checkpointing.checkpoint import (
    Checkpoint,
    DamagedError,
    explained,
    step_name,
)
from trainyard_train.checkpointing.stores import find_checkpoint, store_of_run

if TYPE_CHECKING:
    import torch


def add_commands(parser: Any) -> None:  # noqa: ANN401 (argparse gives its class no public name)
    """Add the commands that inspect saved checkpoints."""
    checkpoint = parser.add_parser("checkpoint", help="list, verify, compare or export checkpoints")
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


def _list(options: argparse.Namespace) -> int:
    store = store_of_run(options.run)
    pins = store.pins()
    _show(f"{'step':>10}  {'samples':>12}  {'ranks':>5}  {'MiB':>10}  saved")
    for step in store.committed():
        try:
            manifest = store.open(step).manifest
        except (DamagedError, OSError) as error:
            _show(_problem(step, error))
            continue
        size = sum(entry.size for entry in manifest.files.values()) / 2**20
        saved = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest.created))
        _show(
            f"{manifest.step:>10}  {manifest.samples:>12}  {manifest.world_size:>5}  {size:>10.2f}  {saved}"
            + (f"  kept: {_reason(pins[step])}" if step in pins else "")
        )
    return 0


def _verify(options: argparse.Namespace) -> int:
    store = store_of_run(options.run)
    damaged = 0
    for step in store.committed():
        try:
            store.open(step).verify()
            _show(f"{step_name(step)}: intact")
        except (DamagedError, OSError) as error:
            damaged += 1
            _show(_problem(step, error))
    return 1 if damaged else 0


def _problem(step: int, error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{step_name(step)}: cannot be read: {explained(error)}"
    return f"{step_name(step)}: damaged: {error}"


def _reason(pin: Mapping[str, Any]) -> str:
    return f"best {pin['metric']}, {pin['value']:g}" if "metric" in pin else str(pin["reason"])


def _diff(options: argparse.Namespace) -> int:
    from trainyard_train.checkpointing.state import load_tensors

    one, other = load_tensors(_open(options.one)), load_tensors(_open(options.other))
    lines = [_difference(name, one.get(name), other.get(name)) for name in sorted({*one, *other})]
    different = [line for line in lines if line]
    _show("\n".join(different) if different else f"equal bit for bit: {len(lines)} tensors")
    return 1 if different else 0


def _export(options: argparse.Namespace) -> int:
    from safetensors.torch import save_file

    from trainyard_train.checkpointing.state import load_tensors

    tensors = load_tensors(_open(options.checkpoint))
    weights = {name.removeprefix("model."): t for name, t in tensors.items() if name.startswith("model.")}
    staged = options.file.with_name(options.file.name + ".tmp")
    save_file(weights, staged, metadata={"format": "pt"})
    staged.replace(options.file)
    _show(f"{options.file}: {len(weights)} tensors")
    return 0


def _open(location: str) -> Checkpoint:
    store, step = find_checkpoint(location)
    if step is not None:
        return store.open(step)
    newest = store.newest(lambda step, reason: _show(f"skipping {step_name(step)}: {reason}"))
    if newest is None:
        raise FileNotFoundError(f"{location} has no intact checkpoint")
    return newest


def _difference(name: str, one: torch.Tensor | None, other: torch.Tensor | None) -> str:
    """Difference of two tensors in words; empty if there is none."""
    if one is None or other is None:
        return f"{name}: only in the {'second' if one is None else 'first'}"
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{name}: {one.dtype} {tuple(one.shape)}, {other.dtype} {tuple(other.shape)}"
    if _bits(one).equal(_bits(other)):
        return ""
    exact = not (one.is_floating_point() or one.is_complex())
    return f"{name}: {_gap_of_integers(one, other) if exact else _gap_of_floats(one, other)}"


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.contiguous().flatten().view(torch.uint8)


def _gap_of_integers(one: torch.Tensor, other: torch.Tensor) -> str:
    """Largest difference in words, by Python's integers: one of two int64 may have 65 bits."""
    pairs = zip(one.flatten().tolist(), other.flatten().tolist(), strict=True)
    return f"differs by up to {max(abs(a - b) for a, b in pairs)}"


def _gap_of_floats(one: torch.Tensor, other: torch.Tensor) -> str:
    """Largest finite difference in words, and the number of differences that are not finite."""
    import torch

    a, b = ((torch.view_as_real(t) if t.is_complex() else t).double() for t in (one, other))
    gaps = (a - b).abs()[(a != b) & ~(a.isnan() & b.isnan())]
    finite = gaps[gaps.isfinite()]
    found = []
    if len(finite):
        found.append(f"differs by up to {float(finite.max()):.3g}")
    if odd := len(gaps) - len(finite):
        found.append(f"differs by NaN or infinity in {odd}")
    return ", ".join(found) or "equal values with different bits: the signs of zeros, or NaNs"


def _show(text: str) -> None:
    sys.stdout.write(text + "\n")
