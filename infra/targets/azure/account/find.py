"""Finds Azure resources of a stack that the engine's state lacks, by name and tags, or by their properties
where the provider generates the name.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.targets.finder import Finder, filled, lookups

Ask = Callable[[str, Mapping[str, str]], Mapping[str, Any] | None]
"""Function from path or URL, and parameters, to the resource; None where it does not exist."""
TAG = "trainyard-stack"
"""Tag of every taggable resource of a stack (infra/targets/azure/cluster/scope.py)."""
_GROUP = "/subscriptions/{subscription}/resourceGroups/{resourceGroupName}/providers"


class AzureFinder(Finder):
    """Looks into one subscription for the resources of one stack."""

    def __init__(self, stack: str, subscription: str, ask: Ask) -> None:
        self._stack = stack
        self._scope = {"subscription": subscription}
        self._ask = ask

    def find_announced(
        self, token: str, _name: str, inputs: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]] | None:
        """Find a resource that a preview would create: its ID, and its name if the provider generated it.

        Taggable resources are adopted only with this stack's tag: a name does not prove ownership.
        """
        lookup = lookups(__package__).get(token)
        if lookup is None:
            return None
        template = str(lookup["at"]).replace("{group}", _GROUP)
        values = {**self._scope, **inputs}
        if "by" in lookup:
            return self._of_its_like(template, lookup, values)
        path = filled(template, values)
        there = self._ask(path, {"api-version": str(lookup["version"])}) if path else None
        if there is None or not self._is_ours(inputs, there):
            return None
        return str(there["id"]), {}

    def _is_ours(self, inputs: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
        asked = inputs.get("tags")
        is_tagged = isinstance(asked, Mapping) and TAG in asked
        return not is_tagged or (there.get("tags") or {}).get(TAG) == self._stack

    def _of_its_like(
        self, template: str, lookup: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]] | None:
        """Find one among its like: Azure requires a unique name among them."""
        like, _, last = template.rpartition("/")
        path, asked = filled(like, values), filled(lookup["filter"], values)
        if path is None or asked is None:
            return None
        for each in self._listed(path, {"api-version": str(lookup["version"]), "$filter": asked}):
            properties = each.get("properties", {})
            if all(_is_same_value(key, properties.get(key), values.get(key)) for key in lookup["by"]):
                return str(each["id"]), {last.strip("{}"): str(each["name"])}
        return None

    def _listed(self, path: str, parameters: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
        page = self._ask(path, parameters) or {}
        while True:
            yield from page.get("value", ())
            if not page.get("nextLink"):
                return
            page = self._ask(page["nextLink"], {}) or {}  # the link contains the parameters


def _is_same_value(key: str, one: Any, other: Any) -> bool:
    """Whether two IDs mean the same: case does not matter, and a role's definition has several paths."""
    if not isinstance(one, str) or not isinstance(other, str):
        return False
    first, second = one.lower().rstrip("/"), other.lower().rstrip("/")
    if key == "roleDefinitionId":
        first, second = first.rpartition("/")[2], second.rpartition("/")[2]
    return first == second
