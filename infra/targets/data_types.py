"""`DataType`: what a target's resources with data are called, what replaces them, and what becomes of them at
`down`. Previews, `down`, `trainyard stack unprotect` and the guides' section "Remove" read these tables.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import yaml

from catalog.quantities import SIZE, units
from infra.common.names import TEAM_LABEL


@dataclass(frozen=True, kw_only=True)
class DataType:
    """A type of resource that holds data, or without which data cannot be read."""

    what: str
    """Noun of a sentence: `filesystem`."""
    replaced_by: Sequence[str] = ()
    """Keys of the stack file besides its name, or their beginnings, whose change replaces the resource by an
    empty one; empty: any key."""
    size: str = ""
    """Property with its size."""
    unit: str = "GiB"
    name: str = ""
    """Property with its physical name, for `remove`; empty: its ID."""
    in_cluster: bool = False
    """Whether it goes with the cluster, even if the engine leaves it."""
    grows: bool = True
    """Whether a larger size is a change in place."""
    expires: str = ""
    """Time after which the cloud itself deletes what the stack deletes: `in 30 days`."""
    remove: str = ""
    """Command that ends the bill of what is kept, `{}` for its physical name."""
    last: str = ""
    """`module:function` that lets the cloud save what is in it before `down` deletes it."""
    back: str = ""
    """How a new stack takes back what was kept, or how the data comes back."""

    def shown_size(self, inputs: Mapping[str, Any]) -> str:
        """Return the size for a sentence: `19,200 GiB`, `1Ti`; empty where the inputs have none."""
        found = self._size(inputs)
        return f"{found:,} {self.unit}" if isinstance(found, int | float) else str(found or "")

    def size_in(self, inputs: Mapping[str, Any]) -> float | None:
        """Return the size for comparisons; None where the inputs have none that is known."""
        found = self._size(inputs)
        if isinstance(found, str):
            return units(found, "Mi") if re.fullmatch(SIZE, found) else None
        return found

    def _size(self, inputs: Mapping[str, Any]) -> float | str | None:
        found: Any = inputs if self.size else None
        for part in self.size.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
        if isinstance(found, str) and found.isdecimal():
            return int(found)
        return found if isinstance(found, int | float | str) else None


@cache
def data_types(package: str) -> Mapping[str, DataType]:
    """Read `data.yaml` of a target's package: type of resource → what is known of its data."""
    text = files(package).joinpath("data.yaml").read_text(encoding="utf-8")
    rows: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text) or {}
    return {name: DataType(**row) for name, row in rows.items()}


TEAM_NAMESPACE = DataType(
    what="namespace",
    in_cluster=True,
    replaced_by=("teams",),
    back="its jobs, Secrets and claims go with it",
)
"""A team's namespace: Kubernetes deletes all that is in it."""


def _protected(resource: Mapping[str, Any]) -> DataType | None:
    """Return the kind of what a stack protects besides data, such as its cluster: any key may replace it."""
    what = str(resource["type"]).rpartition(":")[2].lower()
    return DataType(what=what) if resource.get("protect") else None


@dataclass(frozen=True)
class DataResource:
    """A resource of a state that holds data."""

    urn: str
    kind: DataType
    inputs: Mapping[str, Any]
    id: str = ""
    retained: bool = False
    """Whether the engine leaves it when it is no longer declared."""
    protected: bool = False
    name: str = field(default="")

    def __str__(self) -> str:
        size = self.kind.shown_size(self.inputs)
        return f"{self.kind.what} {self.name}{f' ({size})' if size else ''}"

    def is_kept(self, *, cluster_remains: bool = False) -> bool:
        """Whether `down` leaves it."""
        return self.retained and (cluster_remains or not self.kind.in_cluster)

    @property
    def physical(self) -> str:
        """Its name in the cloud."""
        return str(self.inputs.get(self.kind.name) or self.id or self.name)


def data_in(
    resources: Sequence[Mapping[str, Any]], types: Mapping[str, DataType], *, protected: bool = False
) -> Iterator[DataResource]:
    """Yield the resources of a state that hold data, in its order; with `protected` also its cluster."""
    for each in resources:
        kind = types.get(each["type"]) or _of_platform(each) or (_protected(each) if protected else None)
        if kind is None or not each.get("custom"):
            continue
        yield DataResource(
            each["urn"],
            kind,
            each.get("inputs") or {},
            str(each.get("id") or ""),
            bool(each.get("retainOnDelete")),
            bool(each.get("protect")),
            each["urn"].rpartition("::")[2],
        )


def _of_platform(resource: Mapping[str, Any]) -> DataType | None:
    """Return the kind of a team's namespace; None for other objects."""
    if resource["type"] != "kubernetes:core/v1:Namespace":
        return None
    labels = ((resource.get("inputs") or {}).get("metadata") or {}).get("labels") or {}
    return TEAM_NAMESPACE if TEAM_LABEL in labels else None
