"""The training package is a distribution of its own name, which needs what the lock files are made from."""

from __future__ import annotations

import re
import subprocess
from importlib.metadata import metadata, packages_distributions, requires
from pathlib import Path

from engine.paths import REPOSITORY


def lines(name: str) -> list[str]:
    return (REPOSITORY / "requirements" / name).read_text().splitlines()


def test_it_needs_what_the_lock_files_of_jobs_are_made_from() -> None:
    needed = requires("trainyard-train") or []
    assert [each for each in needed if "extra" not in each] == lines("training.in")
    for extra in ("deepspeed", "tracking"):
        suffix = f'; extra == "{extra}"'
        assert [each.removesuffix(suffix) for each in needed if suffix in each] == lines(f"{extra}.in")


def test_its_name_its_import_and_its_licence() -> None:
    assert metadata("trainyard-train")["License-Expression"] == "Apache-2.0"
    assert set(packages_distributions()["trainyard_train"]) == {"trainyard-train"}


def test_nobody_is_reported_to_install_the_distribution_of_somebody_else() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPOSITORY, capture_output=True, check=True, text=True
    )
    wrong = re.compile(rb"(?:pip|tool) install (?:-\S+ )*[\"']?trainyard(?!-train|\[\S+\] @|[/{])\b")
    files = [REPOSITORY / name for name in listed.stdout.split("\0") if name]
    assert [path for path in files if path.is_file() and wrong.search(Path(path).read_bytes())] == []
