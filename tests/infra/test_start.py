"""The program and the plugins start in `infra/`, whose module names must not hide those of other packages."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from infra.common.artifacts import ROOT

FOLDER = ROOT / "infra"
RELATIVE = ["", ".", ":/nowhere", "/nowhere:", "./", "../infra"]
"""Values of PYTHONPATH with which Python, run by `-c` without -P, has the folder first on its path."""


def run(pythonpath: str, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=FOLDER,
        env={**os.environ, "PYTHONPATH": pythonpath},
        capture_output=True,
        text=True,
        check=False,
    )
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


def test_the_programs_modules_load_with_a_relative_pythonpath() -> None:
    first = "import pulumi, kubernetes; from trainyard_start import put_tree_first; put_tree_first()"
    code = f"{first}; import infra.program as program; print(program.Platform.__module__)"
    assert run(".", code) == "infra.platform.platform"


def test_our_plugins_start_with_a_relative_pythonpath() -> None:
    for plugin in ("engine.provider", "engine.language_host"):
        code = f"import sys, trainyard_start as s; sys.argv[1:] = ['127.0.0.1:1']; s.start({plugin!r})"
        environment = {**os.environ, "PYTHONPATH": "."}
        process = subprocess.Popen(
            [sys.executable, "-c", code], cwd=FOLDER, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        process.terminate()
        assert process.wait() == 0


def test_no_other_name_of_the_folder_is_that_of_a_package_or_of_a_standard_module() -> None:
    ours = {path.stem for path in FOLDER.iterdir() if path.suffix in ("", ".py")} - {"platform"}
    assert ours.isdisjoint(sys.stdlib_module_names)
    assert ours.isdisjoint(packages_distributions())
