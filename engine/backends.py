"""Queries the state of stacks (existence, locks, pending operations, protected resources) in a file backend
or a remote backend, and deletes half-written attribute files of a file backend.

The files of a file backend are read directly, which costs milliseconds. Any other backend (a bucket, a
service) is read through `pulumi`, which shows no locks.
"""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NUM_KEPT = 5
"""States before the last operations that remain on this host: not every store has versions."""
Ask = Callable[..., str]
"""Function that runs `pulumi` for a stack, with the arguments after it, and returns its output."""


class Backend(ABC):
    """The state of one project's stacks."""

    @abstractmethod
    def exists(self, stack: str) -> bool:
        """Whether the stack was ever created."""

    @abstractmethod
    def locks(self, stack: str) -> list[dict[str, Any]]:
        """The locks that are held, or were when their engine was killed, as far as they can be seen here."""

    @abstractmethod
    def mend(self) -> None:
        """Remove incomplete files of a killed engine."""

    @abstractmethod
    def _deployment(self, stack: str) -> dict[str, Any]:
        """The stack's resources and pending operations; empty where nothing was written down."""

    def is_empty(self, stack: str) -> bool:
        """Whether no resource is written down."""
        return not self.exists(stack) or not self._deployment(stack).get("resources")

    def protected(self, stack: str) -> list[str]:
        """URNs of the resources that the engine refuses to delete."""
        resources = self._deployment(stack).get("resources") or []
        return [each["urn"] for each in resources if each.get("protect")]

    def keep(self, stack: str, folder: Path) -> None:
        """Copy a state with resources as `pulumi stack import` takes it, and delete all but the last few."""
        if deployment := self._deployment(stack):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = folder / f"{time.strftime('%Y%m%d-%H%M%S')}.json"
            file.write_text(json.dumps({"version": 3, "deployment": deployment}))
            for former in sorted(folder.glob("*.json"))[:-NUM_KEPT]:
                former.unlink()

    def has_pending_operations(self, stack: str) -> bool:
        """Whether the last engine was cut off in the midst of an operation."""
        return bool(self._deployment(stack).get("pending_operations"))


@dataclass(frozen=True)
class FileBackend(Backend):
    """A folder of this host."""

    folder: Path
    project: str

    def state_file(self, stack: str) -> Path:
        """The stack's checkpoint."""
        return self.folder / ".pulumi" / "stacks" / self.project / f"{stack}.json"

    def exists(self, stack: str) -> bool:
        return self.state_file(stack).exists()

    def mend(self) -> None:
        """Remove attributes that a killed engine has half written: with them it reads no state at all.

        The engine's file store writes `<file>.attrs` beside a file, in place; without it it takes defaults.
        """
        for attributes in (self.folder / ".pulumi").rglob("*.attrs"):
            try:
                json.loads(attributes.read_text())
            except json.JSONDecodeError:
                attributes.unlink(missing_ok=True)

    def _deployment(self, stack: str) -> dict[str, Any]:
        if not self.exists(stack):
            return {}
        checkpoint: dict[str, Any] = json.loads(self.state_file(stack).read_text())["checkpoint"]
        return checkpoint.get("latest") or {}

    def locks(self, stack: str) -> list[dict[str, Any]]:
        folder = self.folder / ".pulumi" / "locks" / "organization" / self.project / stack
        return [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]


@dataclass(frozen=True)
class RemoteBackend(Backend):
    """A bucket, or Pulumi's service: every question is a call of the engine, about a second each."""

    ask: Ask

    def exists(self, stack: str) -> bool:
        known = json.loads(self.ask(stack, "stack", "ls", "--json"))
        return stack in {each["name"].rpartition("/")[2] for each in known}

    def _deployment(self, stack: str) -> dict[str, Any]:
        exported: dict[str, Any] = json.loads(self.ask(stack, "stack", "export", "--stack", stack))
        return exported.get("deployment") or {}

    def locks(self, _stack: str) -> list[dict[str, Any]]:
        """None can be seen: the engine refuses an operation while another one has the stack."""
        return []

    def mend(self) -> None:
        """Do nothing: objects of a bucket are written whole, or not at all."""
