"""Integrations of `Run` with other training loops: Hugging Face's Trainer, Lightning, Accelerate."""

from collections.abc import Iterable

from trainyard_train.config_base import ConfigError
from trainyard_train.run import Run


def numbered(name: str, objects: Iterable[object]) -> dict[str, object]:
    """Name objects of one kind: `optimizer`, `optimizer-2`, …"""
    return {name if number == 1 else f"{name}-{number}": each for number, each in enumerate(objects, start=1)}


def require_all_ranks(framework: str, found: int, run: Run, fix: str) -> None:
    """Refuse ranks that would train apart: without GPUs, they join a launcher's ranks by a setting only.

    Raises:
        ConfigError: the framework trains with other ranks than the run.
    """
    if found != (ranks := run.mesh.world_size):
        raise ConfigError(
            [f"{framework}: got {found} of {ranks} ranks, which would train apart; allowed: all: {fix}"]
        )
