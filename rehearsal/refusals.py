"""Reads the tables `refusals.yaml` of the errors with which a cloud refuses to create or delete resources,
and decides which resources an error applies to.

A row is a state of the account, or a rule of the service: it applies to resources of some types with certain
inputs. Its message is the cloud's own text, which users read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Literal

from rehearsal.cloud import RequestedResource, at
from rehearsal.tables import table

Moment = Literal["create", "delete"]
EVERYWHERE = "rehearsal"
"""Package of the Kubernetes refusals, which apply to all targets."""


@dataclass(frozen=True)
class KnownRefusal:
    """One error of a cloud, as injected by `--refuse`."""

    name: str
    what: str
    """Short description, in the list of refusals to choose from."""
    types: tuple[str, ...]
    """Resource types that the refusal can affect, in full or by their last part."""
    message: str
    """The cloud's error message; `{x}` is a property of the inputs, `{name}` defaults to the logical name."""
    source: str
    """Title and URL of a report of the error."""
    moment: Moment = "create"
    where: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Path in the inputs → condition: a value, `{over: n}`, `{has: key}` or `{among: [value]}`."""
    retained: bool = False
    """Whether the resource exists after the refusal, but differs from its inputs."""
    lasts: bool = False
    """Whether the refusal lasts for hours, whatever the user does."""

    def matches(self, resource: RequestedResource, moment: Moment) -> bool:
        """Whether the cloud would refuse this."""
        return (
            moment == self.moment
            and any(is_type(resource.token, each) for each in self.types)
            and all(_holds(at(resource.inputs, path), wanted) for path, wanted in self.where.items())
        )

    def text(self, resource: RequestedResource) -> str:
        """Return the cloud's error for this resource."""
        return self.message.format_map(_Named({"name": resource.name, **resource.inputs}, resource.name))


class _Named(dict[str, Any]):
    """Inputs for a message, in which a missing property is the resource's name."""

    def __init__(self, values: Mapping[str, Any], name: str) -> None:
        super().__init__(values)
        self._name = name

    def __missing__(self, _key: str) -> str:
        return self._name


def is_type(token: str, wanted: str) -> bool:
    """Whether a type is the one that was written, whole or by its last part."""
    return wanted in (token, token.rpartition(":")[2])


def refusals(package: str) -> dict[str, KnownRefusal]:
    """Return the rows of a fake's package (`rehearsal.aws`), if it has any, and those of all targets."""
    own = files(package).joinpath("refusals.yaml").is_file()
    rows = {**table(EVERYWHERE, "refusals"), **(table(package, "refusals") if own else {})}
    return {name: _read(name, row) for name, row in rows.items()}


def _read(name: str, row: Mapping[str, Any]) -> KnownRefusal:
    return KnownRefusal(name, **{**row, "types": tuple(row["types"])})


def _holds(found: Any, wanted: Any) -> bool:
    """Whether a value fulfils a row's condition; an unknown value does not."""
    if not isinstance(wanted, Mapping):
        return bool(found == wanted)
    if "among" in wanted:
        return found in wanted["among"]
    if "over" in wanted:
        return isinstance(found, int | float) and found > wanted["over"]
    return isinstance(found, Mapping) and wanted["has"] in found
