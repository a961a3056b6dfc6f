"""`ConfigSection`: base class of the sections of a run's configuration, and `ConfigError`, which lists all
problems.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class ConfigError(ValueError):
    """Every problem of a configuration, each with its path, what was found and what is allowed."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class ConfigSection(BaseModel):
    """A part of the configuration: frozen, and without settings that do not exist."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def problems_of(error: ValidationError) -> list[str]:
    """Problems of a validation error, each with its path, what was found and what is allowed."""
    return [line for detail in error.errors() for line in _lines(detail)]


def _lines(detail: Mapping[str, Any]) -> list[str]:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return [f"{where}: missing; add it to the file or with --set {where}=…"]
    if detail["type"] == "extra_forbidden":
        return [f"{where}: got {detail['input']!r}, but there is no such setting"]
    reason = str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "value_error" and isinstance(detail["input"], dict):  # the message has the value
        return reason.splitlines()
    return [f"{where}: got {detail['input']!r}: {reason}"]
