"""`ConfigSection`: base class of the sections of a run's configuration; `RefusalError`: base class of errors
that no restart repeats, such as `ConfigError`, which lists all problems; `extra` and `require`: for imports
of optional packages, and for releases that are too old.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from trainyard_train.contract import EXIT_WRONG_CONFIG

Model = TypeVar("Model", bound=BaseModel)
_PICTURES: Final = (
    "it was removed; use WebDataset and a model of torchvision, timm or Transformers in a loop of your own"
    " with Run (docs/library.md, Pictures)"
)
_LAYERS: Final = (
    "it was removed; use PyTorch's parallelize_module or pipelining in a loop of your own with Run"
    " (docs/library.md)"
)
REMOVED: Final = {
    **dict.fromkeys(("parallel.tensor", "parallel.pipeline"), _LAYERS),
    **dict.fromkeys(("model.name=resnet", "model.depth", "data.name=pictures"), _PICTURES),
    **dict.fromkeys(("data.held_out_path", "data.side", "data.workers"), _PICTURES),
    "backend=mpi": "it was removed; use auto, nccl or gloo, also under mpirun",
}
"""Settings and values that there were, with their successor."""


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


def is_older(found: str, than: tuple[int, int]) -> bool:
    """Whether a version is older than a release; a pre-release such as 2.9.0a0+git counts as its release."""
    return tuple(int(part) for part in found.split(".")[:2]) < than


def require(package: str, found: str, oldest: tuple[int, int], *, use: str = "") -> None:
    """Refuse a release of a package that is older than the oldest that was tested.

    Raises:
        ConfigError: with both numbers.
    """
    if is_older(found, oldest):
        allowed = ".".join(map(str, oldest))
        fix = f"install {package}>={allowed}, or take an image with it"
        raise ConfigError([f"{package}: got {found}{use}; allowed: {allowed} or newer; {fix}"])


class ConfigSection(BaseModel):
    """A part of the configuration: frozen, and without settings that do not exist."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def validated(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Check plain values. Raises ConfigError: with every problem at once."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ConfigError([line for detail in error.errors() for line in _lines(detail)]) from None


def _lines(detail: Mapping[str, Any]) -> list[str]:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "missing":
        return [f"{where}: missing; add it to the file or with --set {where}=…"]
    if detail["type"] == "extra_forbidden":
        there = REMOVED.get(where, "there is no such setting")
        return [f"{where}: got {detail['input']!r}, but {there}"]
    reason = REMOVED.get(f"{where}={detail['input']}") or str(detail["msg"]).removeprefix("Value error, ")
    if detail["type"] == "value_error" and isinstance(detail["input"], dict):  # the message has the value
        return reason.splitlines()
    return [f"{where}: got {detail['input']!r}: {reason}"]
