"""The command as a user has it who has no other program."""

import json
from pathlib import Path
from typing import Any

from infra.common.artifacts import ROOT
from tests.processes import capture


def printed_alone(state: Path, words: str) -> Any:
    """Run `trainyard …` with the system's programs alone; return the JSON that it prints."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "TRAINYARD_STATE": str(state)}
    ended = capture([ROOT / ".venv/bin/trainyard", *words.split()], env=environment)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)
