"""Counts the rooms of a package and the arrows between them, for `make check`: a limit may fall, not rise.

A room is a direct child (a module or a folder); an arrow: one room imports another, for types too.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

LIMITS = {"trainyard": (20, 50), "infra/platform": (15, 45)}
"""Package → most rooms, most arrows."""


def room(module: str, package: str) -> str:
    """Return the direct child of the package that has the module; empty where it is outside."""
    return module.removeprefix(package + ".").split(".")[0] if module.startswith(package + ".") else ""


def imported(file: Path) -> Iterator[str]:
    """Yield what the file imports, dotted; of `from a import b` it is `a.b`, which may be a module."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def counted(folder: Path) -> tuple[set[str], set[tuple[str, str]]]:
    """Return the rooms and the arrows of a package."""
    package = ".".join(folder.parts)
    files = {path: room(".".join(path.with_suffix("").parts), package) for path in folder.rglob("*.py")}
    rooms = set(files.values()) - {"__init__", "__main__"}
    arrows = {(here, room(name, package)) for path, here in files.items() for name in imported(path)}
    return rooms, {
        (here, there) for here, there in arrows if here in rooms and there in rooms and here != there
    }


def main() -> None:
    """Exit with 1 where a package has more than its limits."""
    wrong = []
    for name, (most_rooms, most_arrows) in LIMITS.items():
        rooms, arrows = counted(Path(name))
        print(f"{name}: {len(rooms)} rooms of {most_rooms}, {len(arrows)} arrows of {most_arrows}")
        if len(rooms) > most_rooms or len(arrows) > most_arrows:
            wrong.append(name)
    sys.exit(f"too many rooms or arrows: {', '.join(wrong)}" if wrong else 0)


if __name__ == "__main__":
    main()
