"""The commands `export` and `import` of `python -m trainyard_train`: convert checkpoints to and from other
formats.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, Final

from trainyard_train.config_base import ConfigError

_UNITS: Final = {"KB": 10**3, "MB": 10**6, "GB": 10**9}


def add_commands(parser: Any) -> None:  # noqa: ANN401 (argparse gives its class no public name)
    """Add the commands that convert from and to other formats."""
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


def _export(options: argparse.Namespace) -> int:
    from trainyard_train.checkpointing.exporting import export_checkpoint

    size = _bytes(options.shard_size)
    names = export_checkpoint(options.run, options.to, options.out, only=options.only, shard_bytes=size)
    sys.stdout.write(f"{options.out}: {', '.join(names)}\n")
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
    sys.stdout.write(f"{options.store or options.run}: {found}\n")
    return 0


def _bytes(text: str) -> int:
    found = re.fullmatch(r"([1-9]\d*)(KB|MB|GB)", text)
    if not found:
        raise ConfigError([f"--shard-size: got {text!r}; allowed: a number with KB, MB or GB, such as 5GB"])
    return int(found[1]) * _UNITS[found[2]]
