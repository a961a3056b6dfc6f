"""Whether the pack judges a run: announced in the engine's own folder, for components that else warn.

The engine tells a plugin nothing about policies.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from policies import previews


def _file_of(project: str, stack: str, environment: Mapping[str, str]) -> Path:
    return previews.file_of(project, stack, environment).with_suffix(".judging")


def announce(project: str, stack: str, environment: Mapping[str, str]) -> None:
    """Say that this process judges the stack, as long as it lives."""
    file = _file_of(project, stack, environment)
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(str(os.getpid()), encoding="utf-8")


def retract(project: str, stack: str, environment: Mapping[str, str]) -> None:
    """Take that back, at the process's end."""
    with suppress(OSError):
        _file_of(project, stack, environment).unlink(missing_ok=True)


def is_judging(project: str, stack: str, environment: Mapping[str, str]) -> bool:
    """Whether a pack that has announced itself still runs."""
    try:
        os.kill(int(_file_of(project, stack, environment).read_text(encoding="utf-8")), 0)
    except PermissionError:
        return True  # it runs, as another user
    except (OSError, ValueError):
        return False
    return True
