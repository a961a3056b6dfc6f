"""What moto lacks, answered from what a stand-in has made: a finder asks for it as it would ask AWS."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rehearsal.store import Store

PLACEMENT_GROUP = "aws:ec2/placementGroup:PlacementGroup"
_OPERATIONS = frozenset({"describe_placement_groups"})


class Ec2:
    """A client of EC2 that knows placement groups, and is moto's for the rest.

    The engine tells two of one type by names that the provider makes up: a group that is not found would be
    made a second time, and a launch template that names it would roll its nodes.
    """

    def __init__(self, client: Any, made: Path) -> None:
        self._client = client
        self._made = made

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._client, operation)

    def can_paginate(self, operation: str) -> bool:
        """Whether an answer may come in parts."""
        return operation not in _OPERATIONS and bool(self._client.can_paginate(operation))

    def describe_placement_groups(self, GroupNames: Sequence[str] = ()) -> dict[str, Any]:  # noqa: N803
        """List the groups, all or those of these names."""
        names = [str(kept.outputs["name"]) for kept in Store(self._made) if kept.token == PLACEMENT_GROUP]
        return {
            "PlacementGroups": [{"GroupName": name} for name in names if not GroupNames or name in GroupNames]
        }
