"""Looks up the resources of a run by reference, for policies over several resources.

A policy asks, for example, for the bucket policies whose `bucket` is this bucket's name. At preview that
name is often an output of a resource that does not exist yet. The engine then reports only which resource the
property depends on, and the look-up uses that dependency instead of the value.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from policies.unknowns import PropertyBlock, UnknownProperty, Value


class Declared(Protocol):
    """The two attributes of a resource that the look-up reads."""

    @property
    def urn(self) -> str:
        """URN of the resource."""

    @property
    def props(self) -> PropertyBlock:
        """Inputs of the resource."""


AnyResource = TypeVar("AnyResource", bound=Declared)


@dataclass(frozen=True)
class RelatedResource(Generic[AnyResource]):
    """A resource at the end of a run: its inputs, its outputs and its dependencies."""

    resource: AnyResource
    """The resource with its inputs."""
    outputs: PropertyBlock = field(default_factory=PropertyBlock)
    """Outputs of the resource; many are unknown at preview."""
    depends_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Property → URNs of the resources whose outputs determine its value."""

    def known(self, name: str) -> Value:
        """Return the property from the outputs, else from the inputs; None where it is unknown."""
        for properties in (self.outputs, self.resource.props):
            try:
                if (value := properties.get(name)) is not None:
                    return value
            except UnknownProperty:
                continue
        return None


class RelatedResources(Generic[AnyResource]):
    """All resources of a run whose types a policy over several resources names."""

    def __init__(self, members: Iterable[RelatedResource[AnyResource]] = ()) -> None:
        self._by_urn = {member.resource.urn: member for member in members}
        self._pointing: dict[str, dict[tuple[str, str], list[AnyResource]]] = {}

    @cached_property
    def resources(self) -> tuple[AnyResource, ...]:
        """All resources, in the order of the run."""
        return tuple(member.resource for member in self._by_urn.values())

    def pointing_at(self, target: AnyResource, by: str, name: str) -> list[AnyResource]:
        """Return the resources whose property `by` (`launchTemplate.id`) equals the target's property `name`.

        Where one of the two values is unknown, the property must depend on the target and on no other
        resource: with two dependencies the value could come from either.
        """
        pointing = self._index(by)
        itself = self._by_urn.get(target.urn)
        named = itself.known(name) if itself else None
        if named is None:
            return pointing.get(("depends on", target.urn), [])
        unknown = pointing.get(("unknown, depends on", target.urn), [])
        return [*unknown, *pointing.get(("value", str(named)), [])]

    def _index(self, by: str) -> Mapping[tuple[str, str], list[AnyResource]]:
        """Index resources by the value or the dependency of a property; built once per property."""
        if by not in self._pointing:
            index = self._pointing[by] = defaultdict(list)
            for member in self._by_urn.values():
                origins = member.depends_on.get(by.partition(".")[0], ())
                value = member.known(by)
                if value is not None:
                    index["value", str(value)].append(member.resource)
                if len(origins) == 1:
                    index["depends on", origins[0]].append(member.resource)
                    if value is None:
                        index["unknown, depends on", origins[0]].append(member.resource)
        return self._pointing[by]
