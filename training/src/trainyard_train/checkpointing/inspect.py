"""Commands for checkpoints: `python -m trainyard_train checkpoint` lists, verifies and compares them;
`export` and `import` convert them to and from other formats.

`ls` and `verify` take a run: its folder, or the URL of its store. `diff` and `export` also take a single
checkpoint, such as `runs/7/checkpoints/step-00000020` or `s3://bucket/runs/7/step-00000020`; of a run they
use the newest intact checkpoint.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trainyard_train.checkpointing.checkpoint import DamagedError, explained, step_name
from trainyard_train.checkpointing.stores import find_checkpoint, store_of_run
from trainyard_train.config_base import ConfigError

if TYPE_CHECKING:
    import torch

_UNITS: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def add_commands(parser: Any) -> None:  # noqa: ANN401 (argparse gives its class no public name)
    """Add the commands for saved checkpoints."""
    checkpoint = parser.add_parser("checkpoint", help="list, verify or compare checkpoints")
    commands = checkpoint.add_subparsers(required=True)
    for function, paths, text in (
        (_list, ["run"], "list a run's checkpoints"),
        (_verify, ["run"], "read every byte of a run's checkpoints and compare it with the manifests"),
        (_diff, ["one", "other"], "compare two checkpoints, tensor by tensor"),
    ):
        name = function.__name__.strip("_").replace("list", "ls")
        command = commands.add_parser(name, help=text, description=text)
        for path in paths:
            command.add_argument(path)
        command.set_defaults(command=function)
    text = "export a run's newest checkpoint, or one of its checkpoints, to another format"
    export = parser.add_parser("export", help=text, description=text)
    export.add_argument("run", help="folder of a run, URL of its store, or one checkpoint in them")
    export.add_argument("out", type=Path, help="a new folder (hf, dcp) or file (torch)")
    export.add_argument("--to", required=True, choices=["hf", "dcp", "torch"])
    export.add_argument(
        "--shard-size",
        default="5GB",
        metavar="SIZE",
        help="maximum size of a file (hf), such as 500MB; default 5GB",
    )
    export.set_defaults(command=_export)
    text = "create a run's first checkpoint from torch.save, torch.distributed.checkpoint or safetensors"
    import_ = parser.add_parser("import", help=text, description=text)
    import_.add_argument("source", type=Path, help="a file or folder of one of these formats")
    import_.add_argument("run", type=Path, help="folder of the run; nothing may be saved there yet")
    import_.add_argument("--store", default="", metavar="URL", help="the run's object store, if it has one")
    import_.add_argument(
        "--name", default="model", help="name under which the run tracks the source's module (model)"
    )
    import_.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="OLD=NEW",
        help="replace a prefix of names in the source, such as state_dict=model",
    )
    import_.set_defaults(command=_import)
    for command in (export, import_):
        command.add_argument(
            "--only", action="append", default=[], metavar="NAME", help="only this tracked object"
        )


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
    from trainyard_train.checkpointing.saved import open_saved

    with (
        open_saved(*find_checkpoint(options.one)) as one,
        open_saved(*find_checkpoint(options.other)) as other,
    ):
        lines = [
            _difference(name, *(each.tensor(name) if name in each.kinds else None for each in (one, other)))
            for name in sorted({*one.kinds, *other.kinds})
        ]
    different = [line for line in lines if line]
    _show("\n".join(different) if different else f"equal bit for bit: {len(lines)} tensors")
    return 1 if different else 0


def _difference(name: str, one: torch.Tensor | None, other: torch.Tensor | None) -> str:
    """Difference of two tensors in words; empty if there is none."""
    from trainyard_train.checkpointing.tensor_files import as_bytes

    if one is None or other is None:
        return f"{name}: only in the {'second' if one is None else 'first'}"
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{name}: {one.dtype} {tuple(one.shape)}, {other.dtype} {tuple(other.shape)}"
    if as_bytes(one.contiguous()).equal(as_bytes(other.contiguous())):
        return ""
    if one.is_floating_point() or one.is_complex():
        return f"{name}: {_gap_of_floats(one, other)}"
    # By Python's integers: the difference of two int64 may have 65 bits.
    pairs = zip(one.flatten().tolist(), other.flatten().tolist(), strict=True)
    return f"{name}: differs by up to {max(abs(a - b) for a, b in pairs)}"


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


def _export(options: argparse.Namespace) -> int:
    from trainyard_train.checkpointing.exporting import export_checkpoint

    size = _bytes(options.shard_size)
    names = export_checkpoint(options.run, options.to, options.out, only=options.only, shard_bytes=size)
    _show(f"{options.out}: {', '.join(names)}")
    return 0


def _import(options: argparse.Namespace) -> int:
    from trainyard_train.checkpointing.importing import import_checkpoint

    if wrong := [text for text in options.map if text.count("=") != 1]:
        raise ConfigError([f"--map: got {text!r}; allowed: OLD=NEW" for text in wrong])
    renames = dict(text.split("=") for text in options.map)
    kinds = import_checkpoint(
        options.source,
        options.run,
        store=options.store,
        name=options.name,
        renames=renames,
        only=options.only,
    )
    found = ", ".join(f"{name} ({kind})" for name, kind in sorted(kinds.items()))
    _show(f"{options.store or options.run}: {found}")
    return 0


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d*)(KB|MB|GB)", text)
    if not found:
        raise ConfigError([f"--shard-size: got {text!r}; allowed: a number with KB, MB or GB, such as 5GB"])
    return int(found[1]) * _UNITS[found[2]]


def _show(text: str) -> None:
    sys.stdout.write(text + "\n")
