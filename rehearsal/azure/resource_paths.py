"""Where Azure's resources are: `resource_paths.yaml`, and its placeholders."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rehearsal.placeholders import filled
from rehearsal.tables import table

_GROUP = "/subscriptions/{subscription}/resourceGroups/{resourceGroupName}/providers"


def resource_paths() -> Mapping[str, Mapping[str, Any]]:
    """Type → where it is, as written."""
    return table("rehearsal.azure", "resource_paths")


def identity(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the path of a resource, which is its ID; None where type or values do not tell it."""
    return filled(_template(token), values) if token in resource_paths() else None


def collection(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the path under which a resource is listed with its like."""
    return filled(_template(token).rpartition("/")[0], values)


def name_property(token: str) -> str:
    """Return the property that is a resource's name: `agentPoolName`."""
    return _template(token).rpartition("{")[2].removesuffix("}")


def _template(token: str) -> str:
    return str(resource_paths()[token]["id"]).replace("{group}", _GROUP)
