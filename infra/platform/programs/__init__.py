"""Loads the programs that containers run: each is a file whose text a manifest carries after `-c`.

Comments at a program's head describe the program, in shell and in Python: `program` drops them, so that
manifests stay small. A docstring would remain.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from itertools import dropwhile

import catalog
from infra.common import names


def program(name: str, **values: str) -> str:
    """Return a program's text without the comments at its head; each of `values` replaces its `@name@`."""
    text = _text(name)
    for key, value in values.items():
        text = text.replace(f"@{key}@", value)
    return text


def on_fabric(fabric: str) -> list[str]:
    """Return the wrapper of a command whose ranks use a fabric, or NVIDIA's GPUs without one; else empty."""
    if catalog.fabric(fabric).node_files:
        return ["/bin/sh", "-c", program("start_on_fabric.sh").rstrip(), "sh"]
    return ["/bin/sh", "-c", program("find_driver.sh").rstrip(), "sh"] if fabric == "tcp" else []


def unpacking() -> list[str]:
    """Return the wrapper that starts a command in the folder of its job's code, if it has code."""
    text = program("unpack_code.sh", by_python=program("unpack_code.py")).rstrip()
    return ["/bin/sh", "-c", text, "unpack_code", names.CODE_STORE, names.CODE_FOLDER]


@cache
def _text(name: str) -> str:
    lines = files(__name__).joinpath(name).read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(dropwhile(lambda line: line.startswith("#"), lines))
