"""`ConfigSection`: base class of the sections of a run's configuration; `RefusalError`: base class of errors
that no restart repeats, such as `ConfigError`, which lists all problems; `extra`: for imports of optional
packages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from trainyard_train.contract import EXIT_WRONG_CONFIG


class RefusalError(ValueError):
    """A restart would end in the same way: a person must change something. Each line has one problem."""

    exit_code: int = EXIT_WRONG_CONFIG


class ConfigError(RefusalError):
    """Every problem of a configuration, each with its path, what was found and what is allowed."""

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the extra of this distribution whose packages the imports inside of it lack.

    Raises:
        ConfigError: one is not installed.
    """
    try:
        yield
    except ImportError as error:
        problem = f"{error.name} is not installed; install trainyard-train[{name}], or take an image with it"
        raise ConfigError([problem]) from None


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
