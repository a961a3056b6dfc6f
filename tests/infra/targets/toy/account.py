"""The toy target's account: it finds boxes by their labels."""

from collections.abc import Callable, Mapping
from typing import Any

from infra.errors import HostError, InputError, Problem
from infra.stackfile import Stack
from infra.targets.account import Preflight
from infra.targets.backend import BackendSetup, StateLocation
from infra.targets.finder import Finder

Ask = Callable[[str], str | None]
"""Label → ID of the box with it, or None."""
BOX = "toys:index:Box"


class ToyFinder(Finder):
    """Finds a stack's boxes."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    def find_announced(
        self, token: str, _name: str, inputs: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]] | None:
        """Find a box that a preview announces."""
        made = self._ask(inputs["label"]) if token == BOX else None
        return (made, {}) if made else None


class ToyAccount:
    """An account in a cloud that does not exist."""

    def preflight(self, _stack: Stack) -> Preflight:
        return Preflight("the boxes", why_unreadable="Toy: nobody has an account")

    def state_location(self, _stack: Stack, _bucket: str, _region: str) -> StateLocation | None:
        return None

    def make_backend(self, stack: Stack, _place: StateLocation) -> BackendSetup:
        raise InputError([Problem("kind", stack.target.kind, "aws, gcp", "name another stack")])

    def finder(self, _stack: Stack, ask: Ask | None = None) -> ToyFinder:
        """Return the finder of a stack's boxes."""
        if ask is None:
            raise HostError([Problem("Toy", "no credentials", "an account", "there is none to be had")])
        return ToyFinder(ask)
