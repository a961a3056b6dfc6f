"""What a resource type has to say for itself; the protocol around it is in `service`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from engine.progress import Task

Inputs = Mapping[str, Any]
Outputs = Mapping[str, Any]


class HandlerProgress(Protocol):
    """Where an operation says how far it is; each method raises Cancelled once the user has interrupted."""

    def check(self) -> None:
        """Do nothing but raise Cancelled; for loops that wait."""

    def log(self, text: str) -> None:
        """Show one line."""

    def task(self, name: str) -> AbstractContextManager[Task]:
        """Show a piece of work from its start to its end."""


class Cancelled(Exception):  # noqa: N818 -- no error: the user's wish
    """The user has interrupted the engine."""


class Gone(Exception):  # noqa: N818 -- an answer
    """What should be read is no longer there."""


@dataclass(frozen=True)
class Failure:
    """An input that is wrong."""

    property: str
    reason: str


@dataclass(frozen=True)
class Live:
    """What a read found: the inputs that would make it as it is, and its outputs."""

    inputs: Inputs
    outputs: Outputs


class ResourceHandler:
    """One resource type. Operations are idempotent: a create of what is there already adopts it."""

    TYPE: ClassVar[str]
    REPLACES: ClassVar[frozenset[str]] = frozenset()
    """Inputs that cannot change in place."""
    OUTPUTS: ClassVar[frozenset[str]] = frozenset()
    """Outputs that are no inputs: known only once it exists, and the same from then on."""
    RENEWED: ClassVar[frozenset[str]] = frozenset()
    """Of these, the ones that each update makes anew."""
    SECRETS: ClassVar[frozenset[str]] = frozenset()
    """Inputs and outputs that are secret whatever the program says."""
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset()
    """Inputs that say how to make it, not what it is: another value alone is no change."""
    REFRESHES: ClassVar[bool] = False
    """Whether the engine should read it before each update, because it can vanish or break by itself."""

    def check(self, inputs: Inputs) -> list[Failure]:
        """Say everything that is wrong with inputs that are all known."""
        raise NotImplementedError

    def identify(self, inputs: Inputs) -> str:
        """Its id, known from its inputs alone."""
        raise NotImplementedError

    def due(self, outputs: Outputs) -> str:
        """Name the output whose time has come, so that an update is due though no input has changed."""
        return ""

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        """Make it, or adopt what an interrupted run has left."""
        raise NotImplementedError

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> Live:
        """Look at it. Raises Gone where there is nothing."""
        raise NotImplementedError

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        """Change it in place; `old` are the inputs of the last update that succeeded."""
        raise NotImplementedError

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Remove it; nothing to remove is no error."""
        raise NotImplementedError


class Moment(ResourceHandler):
    """A type that only waits: there is nothing to read, and nothing to remove."""

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        return self.create(new, progress)

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> Live:
        return Live(inputs, outputs)

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Nothing: what was waited for goes by itself."""
