"""The command of a rehearsal as a user runs it, with no credential."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from infra.artifacts import ROOT
from rehearsal.leaks import Leak, leaks_in

_SECRET = ("AWS_", "GOOGLE_", "KUBECONFIG")


def plain_environment(folder: Path) -> dict[str, str]:
    """The environment without anyone's credentials, and with a state of its own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(_SECRET)}
    return {**kept, "TRAINYARD_STATE": str(folder / "state")}


def rehearse(folder: Path, *arguments: str, stacks: Path | None = None, code: int = 0) -> Any:
    """Run the command; return its report, or what it says where it fails."""
    own = {"TRAINYARD_STACKS": str(stacks)} if stacks else {}
    ended = subprocess.run(
        [ROOT / ".venv/bin/trainyard", "rehearse", "-o", "json", *arguments],
        env={**plain_environment(folder), **own},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert ended.returncode == code, ended.stderr[-4000:]
    assert leaks_told(ended) == []
    return json.loads(ended.stdout) if code == 0 else ended.stderr


def leaks_told(ended: subprocess.CompletedProcess[str]) -> list[Leak]:
    """Secrets in what a command has told; through its files a rehearsal looks itself, before they go."""
    return leaks_in(dict.fromkeys((ended.stdout + ended.stderr).splitlines(), "told"))
