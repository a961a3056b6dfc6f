"""A fake of a cloud's command line that only validates arguments by the cloud's reference.

`reference_cli.py TABLE ARGUMENT…`: the table has each command's source, its options, and which are required.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

WRONG = 2


def refusal_of(table: dict[str, Any], words: Sequence[str]) -> str:
    """Return why the arguments are refused; empty for a valid command."""
    for command, known in table.items():
        path = command.split()
        if list(words[: len(path)]) != path:
            continue
        rest = list(words[len(path) :])
        given = {word.partition("=")[0] for word in rest if word.startswith("--")}
        positional = _positional(rest, known.get("flags", []))
        if unknown := given - {*known.get("options", []), *known.get("flags", [])}:
            return f"{command}: unrecognized arguments: {' '.join(sorted(unknown))}"
        if missing := set(known.get("required", [])) - given:
            return f"{command}: argument {' '.join(sorted(missing))}: must be specified"
        if len(positional) != known.get("positional", 0):
            return f"{command}: got {len(positional)} positional arguments: {' '.join(positional)}"
        return ""
    return f"invalid choice: {' '.join(words[:3])}"


def _positional(words: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return the arguments that are neither options nor values of options."""
    found: list[str] = []
    expects_value = False
    for word in words:
        if word.startswith("--"):
            expects_value = "=" not in word and word not in flags
        elif expects_value:
            expects_value = False
        else:
            found.append(word)
    return found


if __name__ == "__main__":
    commands = yaml.safe_load(Path(sys.argv[1]).read_text())["commands"]
    refusal = refusal_of(commands, sys.argv[2:])
    if refusal:
        sys.stderr.write(f"ERROR: {refusal}\n")
    sys.exit(WRONG if refusal else 0)
