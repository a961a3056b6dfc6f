"""Reads lock files, with Python's own library alone: before any package is installed, and in images.

`python3 local/locked.py LOCK PACKAGE…` prints the entries of packages and of all that they need, for pip's
`--require-hashes --no-deps --requirement`.
"""

import re
import sys
from pathlib import Path

_ENTRY = re.compile(r"(?m)^(?P<name>[a-z0-9][a-z0-9._-]*)==(?P<version>[^\s;]+).*\n(?: .*\n)*")
_VIA = "    # via "


def locked_versions(lock: Path) -> dict[str, str]:
    """Return name → version of all that a lock file has."""
    return {found["name"]: found["version"] for found in _ENTRY.finditer(lock.read_text(encoding="utf-8"))}


def entries(lock: Path, *names: str) -> str:
    """Return the lock's entries of packages and of all that they need, which its comments (`# via`) name."""
    found = [(each["name"], each[0]) for each in _ENTRY.finditer(lock.read_text(encoding="utf-8"))]
    if missing := set(names) - {name for name, _ in found}:
        raise LookupError(f"{lock} has no entry of {', '.join(sorted(missing))}; `make lock` writes it")
    wanted, number = set(names), 0
    while number != len(wanted):
        number = len(wanted)
        wanted |= {name for name, entry in found if wanted & _dependents(entry)}
    return "".join(entry for name, entry in found if name in wanted)


def _dependents(entry: str) -> set[str]:
    _, _, via = entry.partition(_VIA)
    return {each.split()[0] for each in via.strip().split(", ") if each}


if __name__ == "__main__":
    sys.stdout.write(entries(Path(sys.argv[1]), *sys.argv[2:]))
