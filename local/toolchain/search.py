"""Finds installed programs on PATH, and their versions."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from packaging.version import Version

SYSTEM_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Folders that are searched after PATH, since a user's PATH may lack system programs."""

VERSION_SECONDS = 20.0
"""Timeout for a program to print its version."""

_VERSION = re.compile(r"(?:^|[^\d.])v?(\d+\.\d+(?:\.\d+)?)(?![\d.])")


def find_on_path(name: str, *, excluding: Path | None = None) -> Path | None:
    """Return the program on PATH or in a system folder, but not from the folder `excluding` (our own)."""
    folders = [*os.environ.get("PATH", "").split(os.pathsep), *SYSTEM_FOLDERS]
    foreign = [folder for folder in folders if folder and Path(folder) != excluding]
    found = shutil.which(name, path=os.pathsep.join(foreign))
    return Path(found) if found else None


@cache
def version_of(program: Path, arguments: tuple[str, ...]) -> Version | None:
    """Run the program and read the first version it prints; None if it prints none or fails."""
    command: Sequence[str] = [str(program), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=VERSION_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = _VERSION.search(done.stdout.replace("go version go", "go version "))
    return Version(match[1]) if match else None
