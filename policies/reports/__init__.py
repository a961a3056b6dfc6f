"""Writes the report of a policy run in every format: JSON, JUnit XML, SARIF and HTML."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from policies.reports.junit import junit
from policies.reports.page import page
from policies.reports.report import PolicyReport
from policies.reports.sarif import sarif

FORMATS: Mapping[str, Callable[[PolicyReport], str]] = {
    "policies.json": lambda report: json.dumps(report.data(), indent=2),
    "policies.sarif": sarif,
    "policies.xml": junit,
    "policies.html": page,
}
"""File name → function that returns the report's text."""


def write(report: PolicyReport, folder: Path) -> None:
    """Write the report in every format."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, render in FORMATS.items():
        (folder / name).write_text(render(report), encoding="utf-8")


__all__ = ["FORMATS", "PolicyReport", "write"]
