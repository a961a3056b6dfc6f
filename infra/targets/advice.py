"""Matches a cloud's error message against known refusals, and returns what to do about it."""

import re
from functools import cache
from pathlib import Path

import yaml

RUN_AGAIN = "and run the same command again: completed work is not repeated"
"""What `{again}` in a fix stands for."""
EVERYWHERE = Path(__file__).with_suffix(".yaml")
"""Advice about Kubernetes' errors, for all targets."""


@cache
def _advice(file: Path) -> list[dict[str, str]]:
    """Read rows: `pattern`, which finds a cloud's text, and `fix`, with the pattern's groups and {again}."""
    rows: list[dict[str, str]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return rows


def next_step(advice: Path | None, message: str) -> str:
    """Return what to do about a message; empty where unknown. The first row that fits counts."""
    rows = [*(_advice(advice) if advice else []), *_advice(EVERYWHERE)]
    for row in rows:
        if found := re.search(row["pattern"], message, re.DOTALL):
            return row["fix"].format(again=RUN_AGAIN, **found.groupdict())
    return ""
