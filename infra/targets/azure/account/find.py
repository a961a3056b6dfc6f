"""Finding what a subscription has of a stack and the engine's state has not, by names and by tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rehearsal.azure.places import collection, identity, name_property, places, query, version

Ask = Callable[[str, Mapping[str, str]], Mapping[str, Any] | None]
"""Path or URL, and parameters → what is there; None where nothing is."""
TAG = "trainyard-stack"
"""On each resource that takes tags (infra/targets/azure/cluster/scope.py)."""


class Finder:
    """Looks into one subscription for the resources of one stack."""

    def __init__(self, stack: str, subscription: str, ask: Ask) -> None:
        self._stack = stack
        self._told = {"subscription": subscription}
        self._ask = ask

    def find(self, token: str, name: str, inputs: Mapping[str, Any]) -> str | None:
        """Return the engine's ID of a resource that exists as its inputs say; else None."""
        found = self.announced(token, name, inputs)
        return found[0] if found else None

    def announced(
        self, token: str, _name: str, inputs: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]] | None:
        """Find a resource that a preview announces: its ID, and its name where the provider had made that up.

        What has tags is taken where they name this stack: a name alone does not make it the stack's.
        """
        place = places().get(token)
        if place is None:
            return None
        values = {**self._told, **inputs}
        if "by" in place:
            return self._of_its_like(token, values)
        path = identity(token, values)
        there = self._ask(path, {"api-version": version(token)}) if path else None
        if there is None or not self._is_ours(inputs, there):
            return None
        return str(there["id"]), {}

    def _is_ours(self, inputs: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
        asked = inputs.get("tags")
        is_tagged = isinstance(asked, Mapping) and TAG in asked
        return not is_tagged or (there.get("tags") or {}).get(TAG) == self._stack

    def _of_its_like(self, token: str, values: Mapping[str, Any]) -> tuple[str, dict[str, str]] | None:
        """Find one among its like: Azure lets no two agree in what tells them apart."""
        path, parameters = collection(token, values), query(token, values)
        if path is None or parameters is None:
            return None
        for each in self._listed(path, parameters):
            told = each.get("properties", {})
            if all(_same(key, told.get(key), values.get(key)) for key in places()[token]["by"]):
                return str(each["id"]), {name_property(token): str(each["name"])}
        return None

    def _listed(self, path: str, parameters: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        page = self._ask(path, parameters) or {}
        while True:
            yield from page.get("value", ())
            if not page.get("nextLink"):
                return
            page = self._ask(page["nextLink"], {}) or {}  # the link has the parameters in it


def _same(key: str, one: Any, other: Any) -> bool:
    """Azure keeps the letters' case of no path, and has a role's definition at several."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    first, second = one.lower().rstrip("/"), other.lower().rstrip("/")
    if key == "roleDefinitionId":
        first, second = first.rpartition("/")[2], second.rpartition("/")[2]
    return first == second
