"""The policy pack writes a PID file while it evaluates a stack; the component package checks that file.

The engine does not pass policy packs to a component; without the file the component warns.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def _file_of(project: str, stack: str, environment: Mapping[str, str]) -> Path:
    home = environment.get("PULUMI_HOME") or Path.home() / ".pulumi"
    return Path(home) / "trainyard" / "policies" / f"{project}.{stack}.judging"


def announce(project: str, stack: str, environment: Mapping[str, str]) -> None:
    """Write the PID file: this process evaluates the stack until it ends."""
    file = _file_of(project, stack, environment)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(os.getpid()), encoding="utf-8")


def retract(project: str, stack: str, environment: Mapping[str, str]) -> None:
    """Remove the PID file, when the process ends."""
    with suppress(OSError):
        _file_of(project, stack, environment).unlink(missing_ok=True)


def is_evaluating(project: str, stack: str, environment: Mapping[str, str]) -> bool:
    """Whether the process in the PID file still runs."""
    try:
        os.kill(int(_file_of(project, stack, environment).read_text(encoding="utf-8")), 0)
    except PermissionError:
        return True  # it runs, as another user
    except (OSError, ValueError):
        return False
    return True
