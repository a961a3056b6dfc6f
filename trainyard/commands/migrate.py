"""`trainyard migrate`: shows the diff that converts a stack or fleet file to the latest version of its
format, and writes the file if `--write` is given.
"""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path

import yaml
from rich.console import Console
from rich.text import Text

from infra.errors import InputError, Problem
from infra.stackfile import load, load_fleet
from infra.stackfile.migrations import LATEST, migrate
from infra.stackfile.source import FLEET_KEY, holds

COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def migrate_file(file: Path, console: Console, *, write: bool = False, since: int | None = None) -> None:
    """Print the diff of the migration; with `write`, write the migrated file.

    Raises:
        InputError: the file cannot be read, or the migrated file has problems. With `write` it is written all
            the same, since the user corrects them there.
    """
    try:
        before = file.read_text(encoding="utf-8")
        after = migrate(before, since)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        got = " ".join(str(error).split())
        raise InputError([Problem(str(file), got, "a stack file in UTF-8 YAML", "name one")]) from None
    if after == before:
        console.print(f"{file}: nothing to change for schema {LATEST}", highlight=False)
    for line in unified_diff(before.splitlines(), after.splitlines(), str(file), "migrated", lineterm=""):
        console.print(Text(line, COLOURS.get(line[:1], "")))
    if write and after != before:
        file.write_text(after, encoding="utf-8")
        console.print(f"{file}: written", highlight=False)
        (load_fleet if holds(file, FLEET_KEY) else load)(file)
