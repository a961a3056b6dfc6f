"""A host that looks like a Mac to the commands that run on it (`sitecustomize.py`)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from engine.paths import REPOSITORY, Paths
from tests.processes import capture

PROGRAMS = "cat chmod cp dirname env git id ln ls mkdir mktemp rm sed sh uname"
"""What PATH has besides our own programs: nothing of util-linux, and no `timeout`, `flock` or `setpriv`."""


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a user of this host who has set no variable of ours."""
    programs, home = folder / "bin", folder / "home"
    if not home.exists():
        programs.mkdir(parents=True)
        home.mkdir()
        for name in PROGRAMS.split():
            (programs / name).symlink_to(shutil.which(name) or "/bin/false")
    ours = Paths.from_environment()
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join(map(str, (programs, ours.venv / "bin", ours.bin))),
        "PYTHONPATH": str(Path(__file__).parent),
        "TRAINYARD_CACHE": str(ours.cache),  # with what `make prepared` has made
        "COLUMNS": "160",
    }


def trainyard(folder: Path, *words: str, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    command = [sys.executable, "-P", str(REPOSITORY / "trainyard_start.py"), "trainyard", *words]
    return capture(command, env=environment(folder), cwd=cwd)
