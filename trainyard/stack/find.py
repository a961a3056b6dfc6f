"""Creates the function that finds cloud resources which the engine's state lacks, in the account or in a
rehearsal's fake.
"""

from functools import cache
from typing import Any

from engine.recovery import Finder, Found, Unfinished
from infra.common.target_registry import target_of
from infra.stackfile import Stack
from infra.targets.finder import Finder as AccountFinder


def finder(stack: Stack, ask: Any = None) -> Finder:  # noqa: ANN401 -- the type differs by target
    """Return what looks into the stack's account with the user's credentials, or asks a rehearsal's fake."""

    @cache
    def look() -> AccountFinder | None:
        account = target_of(stack.target.kind).open_account()  # slow, and rarely needed
        return account.finder(stack, ask) if account else None

    def find(unfinished: Unfinished) -> Found | None:
        looking = look()
        if looking is None:
            return None
        sought = unfinished.token, unfinished.name, unfinished.inputs
        if unfinished.begun:
            identity = looking.find_begun(*sought)
            return Found(identity) if identity else None
        found = looking.find_announced(*sought)
        return Found(*found) if found else None

    return find
