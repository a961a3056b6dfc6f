"""Where Google Cloud's resources are: `places.yaml`, and its placeholders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rehearsal.placeholders import filled
from rehearsal.tables import table

_LAST = re.compile(r"/[^/]+$")


def places() -> Mapping[str, Mapping[str, Any]]:
    """Type → where it is, as written."""
    return table("rehearsal.gcp", "places")


def identity(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the engine's ID of a resource; None for a type, or with values, that do not tell it."""
    place = places().get(token)
    return filled(place["id"], values) if place else None


def address(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL of a resource, or of what it is a part of; None for none, and where it is unknown."""
    template = places().get(token, {}).get("at", "")
    known = identity(token, values)
    return filled(template, {**values, "id": known}) if template and known else None


def collection(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL under which a resource is listed with its like."""
    found = address(token, values)
    if found is None or "in" in places()[token]:
        return found
    return _LAST.sub("", found)


def name_property(token: str) -> str:
    """Return the property that is a resource's name."""
    return str(places()[token].get("named", "name"))
