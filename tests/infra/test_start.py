"""The program and the plugins start in `infra/`, whose module names must not hide those of other packages."""

import os
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from infra.common.artifacts import ROOT
from tests.processes import capture

FOLDER = ROOT / "infra"
RELATIVE = ["", ".", ":/nowhere", "/nowhere:", "./", "../infra"]
"""Values of PYTHONPATH with which Python, run by `-c` without -P, has the folder first on its path."""


def run(pythonpath: str, code: str) -> str:
    done = capture([sys.executable, "-c", code], cwd=FOLDER, env={**os.environ, "PYTHONPATH": pythonpath})
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("pythonpath", RELATIVE)
def test_a_relative_pythonpath_leaves_the_standard_librarys_platform(pythonpath: str) -> None:
    code = (
        "import sys, platform; print(platform.__file__, platform.python_version(), sys.modules['platform'])"
    )
    file, version, module = run(pythonpath, code).split(maxsplit=2)
    assert Path(file) == Path(os.__file__).parent / "platform.py"
    assert version == ".".join(map(str, sys.version_info[:3]))
    assert "infra" not in module


def test_no_other_name_of_the_folder_is_that_of_a_package_or_of_a_standard_module() -> None:
    ours = {path.stem for path in FOLDER.iterdir() if path.suffix in ("", ".py")} - {"platform"}
    assert ours.isdisjoint(sys.stdlib_module_names)
    assert ours.isdisjoint(packages_distributions())
