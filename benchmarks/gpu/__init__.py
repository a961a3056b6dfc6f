"""Runs all GPU benchmarks, each in a separate process with a time limit: `python -m benchmarks gpu`.

They take at most 15 minutes on one GPU. A part that hangs, or ends with GPU memory in use, does not affect
the others. Without a GPU all parts run in tiny sizes on the CPU, which only shows that they run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.figures import Figure, Repeats

PARTS = {
    "ranks": 150,
    "nccl": 60,
    "tokens": 240,
    "llama": 210,
    "states": 180,
}
"""Module of each part → seconds that it may take; 14 minutes together."""


def measure() -> list[Figure]:
    """Run all parts. Those that fail are reported on standard error and counted in the last figure.

    Raises:
        RuntimeError: all parts failed; the message has the end of each one's output.
    """
    figures: list[Figure] = []
    failed = []
    for part in PARTS:
        found, failure = run(part)
        figures += found
        if failure:
            failed.append(f"{part}: {failure}")
            sys.stderr.write(f"{failed[-1]}\n")
    if failed and not figures:
        raise RuntimeError("\n".join(failed))
    return [*figures, Figure("parts that failed", Repeats("trainyard", "", (float(len(failed)),)), 0)]


def run(part: str) -> tuple[list[Figure], str]:
    """Run a part in a separate process; returns its figures, or none and why it failed."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks.gpu", part, str(out)]
        try:
            ended = subprocess.run(command, timeout=PARTS[part], capture_output=True, text=True, check=False)
        except subprocess.TimeoutExpired as error:
            return [], f"took more than {error.timeout:g} s"
        if ended.returncode or not out.exists():
            return [], f"exit code {ended.returncode}: {ended.stderr[-2000:]}"
        return [decoded(each) for each in json.loads(out.read_text())], ""


def encoded(figure: Figure) -> dict[str, object]:
    """A figure as JSON data."""
    return asdict(figure)


def decoded(found: dict[str, object]) -> Figure:
    """Decode what `encoded` returned."""

    def samples(values: object) -> Repeats:
        assert isinstance(values, dict)
        return Repeats(values["name"], values["unit"], tuple(values["values"]))

    peer = samples(found["peer"]) if found["peer"] else None
    at_most = found["at_most"]
    assert isinstance(at_most, int | float)
    return Figure(str(found["claim"]), samples(found["ours"]), at_most, peer)
