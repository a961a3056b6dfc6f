"""A pytest plugin (`-p tests.soak`) for `make soak` in parts: tests passed by the same code do not run again.

`.trainyard/soak.txt` has a digest of all Python and YAML files, and the tests that have passed with them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from engine.paths import REPOSITORY

SOURCES = (
    "benchmarks",
    "catalog",
    "engine",
    "infra",
    "local",
    "policies",
    "rehearsal",
    "stacks",
    "tests",
    "training",
    "trainyard",
)


@dataclass(frozen=True)
class SoakNotes:
    """The file with the tests that have passed with this code."""

    file: Path
    repository: Path

    @cached_property
    def digest(self) -> str:
        """Return the digest of all files that tests may depend on."""
        found = hashlib.sha256()
        files = (path for name in SOURCES for path in (self.repository / name).rglob("*"))
        for path in sorted(path for path in files if path.suffix in {".py", ".yaml"}):
            found.update(f"{path.relative_to(self.repository)}\n".encode() + path.read_bytes())
        return found.hexdigest()

    def passed(self) -> set[str]:
        """Return the tests that need not run again."""
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return set(lines[1:]) if lines[:1] == [self.digest] else set()

    def add(self, name: str) -> None:
        """Store a test that has passed."""
        if not self.passed():
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(f"{self.digest}\n")
        with self.file.open("a") as notes:
            notes.write(f"{name}\n")


NOTES = SoakNotes(REPOSITORY / ".trainyard" / "soak.txt", REPOSITORY)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = NOTES.passed()
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in passed])
    items[:] = [item for item in items if item.nodeid not in passed]


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        NOTES.add(report.nodeid)


def pytest_report_header() -> str:
    return f"{len(NOTES.passed())} tests have passed already ({NOTES.file}; remove it to begin anew)"
