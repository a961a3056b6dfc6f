"""Finds Google Cloud resources of a stack that the engine's state lacks, by name; a bucket must also have the
stack's label.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from infra.errors import Problem, TrainyardError
from infra.targets.finder import filled, lookups

Ask = Callable[[str, Mapping[str, str]], Mapping[str, Any] | None]
"""Function from URL and parameters to the resource; None where it does not exist."""
BUCKET = "gcp:storage/bucket:Bucket"


class GcpFinder:
    """Looks into one project for the resources of one stack."""

    def __init__(self, stack: str, project: str, region: str, ask: Ask) -> None:
        self._stack = stack
        self._scope = {"project": project, "region": region}
        self._ask = ask

    def find_begun(self, token: str, _name: str, inputs: Mapping[str, Any]) -> str | None:
        """Return the engine's ID of a resource that exists under the name in its inputs; else None."""
        values = {**self._scope, **inputs}
        url = address(token, values)
        there = self._ask(url, {}) if url else None
        if there is None:
            return None
        part = _lookups()[token].get("in")
        if part and not _has(there.get(part) or (), values):
            return None
        return identity(token, values)

    def find_announced(
        self, token: str, name: str, inputs: Mapping[str, Any]
    ) -> tuple[str, dict[str, str]] | None:
        """Find a resource that a preview would create: its ID, and its name if the provider generated it.

        A bucket is adopted only with the stack's label: its name does not prove that it is the stack's.
        Raises TrainyardError if several resources match.
        """
        if token not in _lookups():
            return None
        named = self._name(token, name, inputs)
        found = self.find_begun(token, name, {**inputs, **named})
        if found and token == BUCKET and not self._is_ours(inputs):
            return None
        return (found, named) if found else None

    def _is_ours(self, inputs: Mapping[str, Any]) -> bool:
        there = self._ask(address(BUCKET, inputs) or "", {}) or {}
        return (there.get("labels") or {}).get("trainyard-stack") == self._stack

    def _name(self, token: str, name: str, inputs: Mapping[str, Any]) -> dict[str, str]:
        """Return the name that the provider made up for a resource that exists, as a property."""
        key = str(_lookups()[token].get("named", "name"))
        made_up = re.compile(rf"{re.escape(name)}-[0-9a-f]{{7}}")
        url = collection(token, {**self._scope, **inputs})
        if url is None or not made_up.fullmatch(str(inputs.get(key, ""))):
            return {}
        found = sorted(each for each in self._listed(url) if made_up.fullmatch(each))
        if len(found) > 1:
            fix = "remove the unused ones: Trainyard cannot know which one the stack means"
            raise TrainyardError([Problem(f"{token} {name}", ", ".join(found), "one of that name", fix)])
        return {key: found[0]} if found else {}

    def _listed(self, url: str) -> Iterator[str]:
        """Names of all that a collection has; of a resource with parts, theirs."""
        parameters: dict[str, str] = {}
        while True:
            page = self._ask(url, parameters) or {}
            for value in page.values():
                if isinstance(value, list):
                    yield from _names(value)
            if not page.get("nextPageToken"):
                return
            parameters = {"pageToken": page["nextPageToken"]}


def _lookups() -> Mapping[str, Mapping[str, Any]]:
    return lookups(__package__)


def identity(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the engine's ID of a resource; None for a type, or with values, that do not identify it."""
    lookup = _lookups().get(token)
    return filled(lookup["id"], values) if lookup else None


def address(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL of a resource, or of the resource that contains it; None if unknown or absent."""
    template = _lookups().get(token, {}).get("at", "")
    known = identity(token, values)
    return filled(template, {**values, "id": known}) if template and known else None


def collection(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL under which a resource is listed with its like."""
    found = address(token, values)
    return found if found is None or "in" in _lookups()[token] else found.rpartition("/")[0]


def _has(parts: Any, values: Mapping[str, Any]) -> bool:
    """Whether one of the parts is meant: by its name, or as the role of a member."""
    if "member" in values:
        return any(
            each.get("role") == values["role"] and values["member"] in each.get("members", ())
            for each in parts
        )
    return values["name"] in _names(parts)


def _names(items: Any) -> list[str]:
    """Last parts of the names: some Google Cloud APIs give them whole (`projects/…/keyRings/x`)."""
    return [
        str(each["name"]).rpartition("/")[2] for each in items if isinstance(each, Mapping) and "name" in each
    ]
