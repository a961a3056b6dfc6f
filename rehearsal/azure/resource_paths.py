"""Fills in Azure resource IDs, and the URL paths that list resources, from the templates of
`resource_paths.yaml` and a resource's inputs.
"""

from collections.abc import Mapping
from typing import Any

from rehearsal.placeholders import filled
from rehearsal.tables import table

_GROUP = "/subscriptions/{subscription}/resourceGroups/{resourceGroupName}/providers"


def resource_paths() -> Mapping[str, Mapping[str, Any]]:
    """Return type token → entry of the table."""
    return table("rehearsal.azure", "resource_paths")


def identity(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the resource ID; None for an unknown type or missing values."""
    return filled(_template(token), values) if token in resource_paths() else None


def collection(token: str, values: Mapping[str, Any]) -> str | None:
    """Return the URL path that lists resources of this type."""
    return filled(_template(token).rpartition("/")[0], values)


def name_property(token: str) -> str:
    """Return the input property with the resource's name, such as `agentPoolName`."""
    return _template(token).rpartition("{")[2].removesuffix("}")


def _template(token: str) -> str:
    return str(resource_paths()[token]["id"]).replace("{group}", _GROUP)
