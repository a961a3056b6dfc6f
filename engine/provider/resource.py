"""Base classes of the provider's resource types, with their results, errors and progress reports.
`engine.provider.service` calls them on the engine's gRPC requests.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from engine.progress import Progress

Inputs = Mapping[str, Any]
Outputs = Mapping[str, Any]


class HandlerProgress(Progress, Protocol):
    """Progress of an operation; each method raises Cancelled once the user has interrupted."""

    def check(self) -> None:
        """Raise Cancelled after an interrupt, and do nothing else; for loops that wait."""


class Cancelled(Exception):  # noqa: N818 -- no error: the user's wish
    """The user has interrupted the engine."""


class ResourceNotFound(Exception):  # noqa: N818 -- a result, not an error
    """The resource to read no longer exists."""


@dataclass(frozen=True)
class Failure:
    """An invalid input."""

    property: str
    reason: str


@dataclass(frozen=True)
class ReadResult:
    """Result of a read: the inputs that match the actual state, and the outputs."""

    inputs: Inputs
    outputs: Outputs


def wrong_inputs(inputs: Inputs, wanted: Mapping[str, type], others: Collection[str] = ()) -> list[Failure]:
    """Return what is missing, of another type than `wanted`, or neither there nor in `others`."""
    words = {str: "a string", int: "a whole number", list: "a list"}
    wrong = [name for name, kind in wanted.items() if not isinstance(inputs.get(name), kind)]
    unknown = sorted(inputs.keys() - {*wanted, *others})
    return [
        *(Failure(name, f"is required, as {words[wanted[name]]}") for name in wrong),
        *(Failure(name, "is not a property of this type") for name in unknown),
    ]


class ResourceHandler:
    """One resource type. Operations are idempotent: creating an existing resource adopts it."""

    TYPE: ClassVar[str]
    REPLACES: ClassVar[frozenset[str]] = frozenset()
    """Inputs whose change requires replacement."""
    OUTPUTS: ClassVar[frozenset[str]] = frozenset()
    """Outputs that are computed at creation and constant afterwards."""
    RENEWED: ClassVar[frozenset[str]] = frozenset()
    """Outputs that each update computes again."""
    SECRETS: ClassVar[frozenset[str]] = frozenset()
    """Inputs and outputs that are always secret."""
    INCIDENTAL: ClassVar[frozenset[str]] = frozenset()
    """Inputs for the operation only: a change of such an input alone is no diff."""
    REFRESHES: ClassVar[bool] = False
    """Whether the engine reads the resource before each update, because the resource can disappear or
    fail."""

    def check(self, inputs: Inputs) -> list[Failure]:
        """Return all problems of the inputs, which are all known."""
        raise NotImplementedError

    def identify(self, inputs: Inputs) -> str:
        """Return the resource ID, computed from the inputs only."""
        raise NotImplementedError

    def due(self, outputs: Outputs) -> str:
        """Return the name of an output that must be renewed; empty if none. It causes an update."""
        return ""

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        """Create the resource, or adopt what an interrupted run created."""
        raise NotImplementedError

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        """Read the actual state. Raises ResourceNotFound."""
        raise NotImplementedError

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        """Update in place; `old` are the inputs of the last successful update."""
        raise NotImplementedError

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Delete the resource; it is no error if it does not exist."""
        raise NotImplementedError


class WaitResource(ResourceHandler):
    """A resource type that only waits at creation: nothing to read and nothing to delete."""

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        return self.create(new, progress)

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        return ReadResult(inputs, outputs)

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        """Do nothing: other resources own the objects."""
