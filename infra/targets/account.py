"""What a target's account can be asked with the user's credentials, whichever cloud it is in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from infra.errors import Problem
from infra.spec import Stack
from infra.targets.backend import Backend, Place
from infra.targets.finding import Finder


@dataclass(frozen=True)
class Preflight:
    """What an account was asked before `up`, and what it lacks."""

    asked: str
    """What was looked at, in a few words."""
    problems: tuple[Problem, ...] = ()
    not_asked: str = ""
    """Why nobody could ask: no credentials; empty where the account answered."""


class Account(Protocol):
    """A cloud's account, subscription or project."""

    def preflight(self, stack: Stack) -> Preflight:
        """Ask for what `up` needs, changing nothing."""

    def state_place(self, stack: Stack, bucket: str, region: str) -> Place | None:
        """Return where the engine's state would be kept; None where this release makes no such place."""

    def make_backend(self, stack: Stack, place: Place) -> Backend:
        """Make the bucket and the key of the engine's state, or put right what is there.

        Raises InputError for a bucket that is someone else's or elsewhere.
        """

    def finder(self, stack: Stack, ask: Any = None) -> Finder:  # noqa: ANN401 -- each asks in its own way
        """Return what looks here for resources of a stack that the engine's state lacks.

        `ask` takes the place of the account, in a rehearsal: each target says what it asks for.
        Raises MachineError where there are no credentials.
        """
