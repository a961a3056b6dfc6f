"""Builds the wheel: one folder that is a pack, with its packages, and on no other program's path.

All else about the distribution stands in pyproject.toml.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent.parent
LEFT_OUT = ("__pycache__", "build", "examples", "pyproject.toml", "setup.py", "trainyard_policies*")


class BuildPack(build_py):
    """Adds the folder, whose pack runs with the packages of the environment that it is installed in."""

    def run(self) -> None:
        shutil.rmtree(self.build_lib, ignore_errors=True)  # an earlier build's
        super().run()
        tree = Path(self.build_lib) / "trainyard_policies_tree"
        for name in ("catalog", "policies"):
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns(*LEFT_OUT))
        for name in ("PulumiPolicy.yaml", "__main__.py", "requirements.txt"):
            (tree / "policies" / name).rename(tree / name)
        manifest = tree / "PulumiPolicy.yaml"
        of_environment = "../" * 3 + ".."  # ENVIRONMENT/lib/python3.N/site-packages/TREE
        manifest.write_text(manifest.read_text().replace("../.venv", of_environment))


setup(cmdclass={"build_py": BuildPack})
