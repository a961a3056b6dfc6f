"""Golden files: expected text, which `UPDATE_GOLDEN=1` rewrites and which is reviewed like code."""

from __future__ import annotations

import os
from pathlib import Path

CASES = Path(__file__).parent.parent / "cases"
GOLDEN = Path(__file__).parent.parent / "golden"
VARIANTS = sorted(file for file in CASES.glob("*/*.yaml") if not file.parent.name.startswith("wrong"))
"""Valid stack files that are not shipped: `<subject>/<target>.yaml`."""


def subject(variant: Path) -> str:
    """Return the name of a variant for a test's id."""
    return f"{variant.parent.name}-{variant.stem}"


def assert_matches(actual: str, golden: Path) -> None:
    """Compare with the golden file; `UPDATE_GOLDEN=1` rewrites it instead."""
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(actual)
    assert golden.exists(), f"{golden} is missing: run once with UPDATE_GOLDEN=1 and read what it wrote"
    assert actual == golden.read_text()
