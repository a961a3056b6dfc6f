"""Builds the wheel: packs the files that commands read, and the module that starts them.

Commands read more than modules: versions.yaml, locks, Go modules and images to build, the program and the
policies that the engine starts. They find them by their path in a clone, so the wheel has that tree as one
folder. Its packages have common names: only our own processes have it on Python's path (trainyard_start.py).
All else about the distribution stands in pyproject.toml; an editable install takes nothing from here.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

TREE = "trainyard_tree"
"""In site-packages; not a package itself."""
START = "trainyard_start.py"
CONTENTS = (
    "LICENSE", "Pulumi.yaml", "catalog", "engine", "infra", "local", "policies", "rehearsal", "requirements",
    "templates", "training/configs", "training/images", "training/src", "trainyard", START, "versions.yaml",
)  # fmt: skip
LEFT_OUT = ("__pycache__", "*.egg-info", "bootstrap.sh", "build", "examples", "pyproject.toml", "setup.py")
"""What a build leaves, and what only a clone is for."""


class BuildTree(build_py):
    """Copies the tree in place of single modules, and writes a path configuration file (Python's `site`)."""

    def run(self) -> None:
        if self.editable_mode:
            super().run()
            return
        library = Path(self.build_lib)
        shutil.rmtree(library, ignore_errors=True)  # an earlier build's: a module may have been removed since
        for name in CONTENTS:
            source, target = Path(name), library / TREE / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT))
            else:
                shutil.copy(source, target)
        shutil.copy(START, library)
        # The training package has a name of ours alone.
        (library / "trainyard.pth").write_text(f"{TREE}/training/src\n")


setup(cmdclass={"build_py": BuildTree})
