"""Where Google Cloud's resources are: `resource_paths.yaml`, and its placeholders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rehearsal.placeholders import filled
from rehearsal.tables import table

_LAST = re.compile(r"/[^/]+$")


def resource_paths() -> Mapping[str, Mapping[str, Any]]:
    """Type → where it is, as written."""
    return table("rehearsal.gcp", "resource_paths")


def identity(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the engine's ID of a resource; None for a type, or with values, that do not tell it."""
    paths = resource_paths().get(token)
    return filled(paths["id"], values) if paths else None


def address(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL of a resource, or of what it is a part of; None for none, and where it is unknown."""
    template = resource_paths().get(token, {}).get("at", "")
    known = identity(token, values)
    return filled(template, {**values, "id": known}) if template and known else None


def collection(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL under which a resource is listed with its like."""
    found = address(token, values)
    if found is None or "in" in resource_paths()[token]:
        return found
    return _LAST.sub("", found)


def name_property(token: str) -> str:
    """Return the property that is a resource's name."""
    return str(resource_paths()[token].get("named", "name"))
