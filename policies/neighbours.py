"""What a run declared, found by what its properties point at: for rules over several resources.

Before an update most of these properties are the output of a resource that does not exist yet. What the
engine knows even then is which resource such a property is made of, and that decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from policies.unknowns import PropertyBlock, UnknownProperty, Value


class Declared(Protocol):
    """A resource, as far as it matters for finding it."""

    @property
    def urn(self) -> str:
        """Its unique name."""

    @property
    def props(self) -> PropertyBlock:
        """Its inputs."""


AnyResource = TypeVar("AnyResource", bound=Declared)


@dataclass(frozen=True)
class Neighbour(Generic[AnyResource]):
    """One resource at the end of a run."""

    resource: AnyResource
    """As the program declared it."""
    outputs: PropertyBlock = field(default_factory=PropertyBlock)
    """What it became; at preview much of it is unknown."""
    made_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Property → URNs of the resources whose outputs it is made of."""

    def known(self, name: str) -> Value:
        """A property as far as it is known: what it became, else as declared; None where it is unknown."""
        for properties in (self.outputs, self.resource.props):
            try:
                if (value := properties.get(name)) is not None:
                    return value
            except UnknownProperty:
                continue
        return None


class Neighbours(Generic[AnyResource]):
    """All resources of a run that rules over several resources ask for."""

    def __init__(self, members: Iterable[Neighbour[AnyResource]] = ()) -> None:
        self._by_urn = {member.resource.urn: member for member in members}
        self._pointing: dict[str, dict[tuple[str, str], list[AnyResource]]] = {}

    @cached_property
    def resources(self) -> tuple[AnyResource, ...]:
        """Every one, in the order of the run."""
        return tuple(member.resource for member in self._by_urn.values())

    def pointing_at(self, target: AnyResource, by: str, name: str) -> list[AnyResource]:
        """Resources whose property `by`, such as `launchTemplate.id`, is the property `name` of the target.

        Where one of the two is not known, it must be made of the target and of nothing else: what is made
        of two resources may be either's.
        """
        pointing = self._index(by)
        itself = self._by_urn.get(target.urn)
        named = itself.known(name) if itself else None
        if named is None:
            return pointing.get(("made of", target.urn), [])
        unknown = pointing.get(("unknown, made of", target.urn), [])
        return [*unknown, *pointing.get(("value", str(named)), [])]

    def _index(self, by: str) -> Mapping[tuple[str, str], list[AnyResource]]:
        """What points where; made once per property, so that a run's time grows with its size alone."""
        if by not in self._pointing:
            index = self._pointing[by] = defaultdict(list)
            for member in self._by_urn.values():
                origins = member.made_of.get(by.partition(".")[0], ())
                value = member.known(by)
                if value is not None:
                    index["value", str(value)].append(member.resource)
                if len(origins) == 1:
                    index["made of", origins[0]].append(member.resource)
                    if value is None:
                        index["unknown, made of", origins[0]].append(member.resource)
        return self._pointing[by]
