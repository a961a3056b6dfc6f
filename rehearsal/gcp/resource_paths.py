"""Fills in Google Cloud resource IDs and URLs from the templates of `resource_paths.yaml`."""

import re
from collections.abc import Mapping
from typing import Any

from rehearsal.placeholders import filled
from rehearsal.tables import table

_LAST = re.compile(r"/[^/]+$")


def resource_paths() -> Mapping[str, Mapping[str, Any]]:
    """Return type token → entry of the table."""
    return table("rehearsal.gcp", "resource_paths")


def identity(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the Pulumi ID of a resource; None for an unknown type or missing values."""
    paths = resource_paths().get(token)
    return filled(paths["id"], values) if paths else None


def address(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL of a resource, or of the resource that contains it; None if it is unknown."""
    template = resource_paths().get(token, {}).get("at", "")
    known = identity(token, values)
    return filled(template, {**values, "id": known}) if template and known else None


def collection(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL that lists resources of this type."""
    found = address(token, values)
    if found is None or "in" in resource_paths()[token]:
        return found
    return _LAST.sub("", found)


def name_property(token: str) -> str:
    """Return the input property with the resource's name."""
    return str(resource_paths()[token].get("named", "name"))
