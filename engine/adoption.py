"""Adds existing resources to a stack's exported state, where the state was lost or lacks them, and takes
resources out of it that others own from now on.

The engine's own import refuses a resource that differs from the program in any property, and generates new
names where the program gives none. Here a resource enters the state as the program declares it. The caller
then refreshes it, so that the next preview shows the differences as changes.
"""

import json
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from engine.provider.values import UNKNOWN_MARKS
from engine.recovery import Finder, Found, Unfinished

State = Mapping[str, Any]
"""A resource in the format of the engine's events and exported states."""
_HIDDEN = "[secret]"
"""Text by which the engine's events replace a secret."""
_RETAINED = ("urn", "type", "custom", "parent", "provider", "protect", "retainOnDelete")


def adopted(exported: str, announced: Iterable[State], find: Finder) -> tuple[str, list[str]]:
    """Return an exported stack with the resources that a preview would create but that exist, and their URNs.

    A found resource has to be refreshed: only its ID and the program's inputs are known.

    Protected resources with unknown inputs are added only in a round that finds no others: once they are in
    the state, a preview would replace them because of the unknown value, and be refused.
    """
    stack = json.loads(exported)
    deployment = stack["deployment"]
    resources: list[dict[str, Any]] = deployment.get("resources") or []
    deployment["resources"] = resources
    entries = _Entries(resources, announced)
    wanted = entries.wanted()
    at_once = entries.take(find, [state for state in wanted if not _has_unknown_inputs(state)])
    found = at_once or entries.take(find, filter(_has_unknown_inputs, wanted))
    return json.dumps(stack), found


def disowned(exported: str, urns: Collection[str]) -> str:
    """Return an exported stack without these resources, and without what others say of them."""
    stack = json.loads(exported)
    deployment = stack["deployment"]
    gone = set(urns)
    deployment["resources"] = [
        _without_references(each, gone)
        for each in deployment.get("resources") or []
        if each["urn"] not in gone
    ]
    return json.dumps(stack)


def _without_references(resource: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    properties = resource.get("propertyDependencies") or {}
    found = {
        **resource,
        "dependencies": [urn for urn in resource.get("dependencies") or () if urn not in gone],
        "propertyDependencies": {
            key: [urn for urn in urns or () if urn not in gone] for key, urns in properties.items()
        },
    }
    return {key: value for key, value in found.items() if key != "deletedWith" or value not in gone}


def _has_unknown_inputs(state: State) -> bool:
    inputs = state.get("inputs") or {}
    return bool(state.get("protect")) and _known(inputs) != inputs


class _Entries:
    """Resources of a state, to which others are added together with their parents and provider."""

    def __init__(self, resources: list[dict[str, Any]], announced: Iterable[State]) -> None:
        self._resources = resources
        self._announced = {state["urn"]: state for state in announced}
        self._ids = {each["urn"]: each.get("id", "") for each in resources}

    def wanted(self) -> list[State]:
        """Return the resources that a cloud could have: neither components nor providers."""
        return [
            state
            for state in self._announced.values()
            if state.get("custom") and not state["type"].startswith("pulumi:")
        ]

    def take(self, find: Finder, states: Iterable[State]) -> list[str]:
        """Add those of the announced resources that are found; return their URNs."""
        taken: list[str] = []
        for state in states:
            inputs = state.get("inputs") or {}
            made = find(Unfinished(state["type"], state["urn"].split("::", 3)[3], inputs, begun=False))
            if made and self.add(state, made):
                taken.append(state["urn"])
        return taken

    def add(self, state: State, found: Found) -> bool:
        """Add a resource; False where its provider's configuration is not known yet."""
        provider = (state.get("provider") or "").rpartition("::")[0]
        if not self._ensure(state.get("parent", "")) or not (provider and self._ensure(provider)):
            return False
        inputs = {**_known(state.get("inputs") or {}), **found.inputs}
        entry = {**_entry(state), "provider": f"{provider}::{self._ids[provider]}"}
        self._put({**entry, "id": found.id, "inputs": inputs, "outputs": inputs})
        return True

    def _ensure(self, urn: str) -> bool:
        """Add a parent or a provider, with its own parents, unless the state has it."""
        if not urn or urn in self._ids:
            return True
        state = self._announced.get(urn)
        if state is None or not self._ensure(state.get("parent", "")):
            return False
        inputs = state.get("inputs") or {}
        if not state.get("custom"):
            self._put(_entry(state))
        elif _known(inputs) == inputs:
            outputs = {key: value for key, value in inputs.items() if key != "__internal"}  # the engine's own
            self._put({**_entry(state), "id": str(uuid.uuid4()), "inputs": inputs, "outputs": outputs})
        return urn in self._ids

    def _put(self, entry: dict[str, Any]) -> None:
        self._resources.append(entry)
        self._ids[entry["urn"]] = entry.get("id", "")


def _entry(state: State) -> dict[str, Any]:
    return {"custom": False, **{key: state[key] for key in _RETAINED if state.get(key)}}


def _known(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Omit unknown values and secrets, which the refresh adds."""
    hidden = (*UNKNOWN_MARKS, _HIDDEN)
    return {
        key: value for key, value in inputs.items() if not any(mark in json.dumps(value) for mark in hidden)
    }
