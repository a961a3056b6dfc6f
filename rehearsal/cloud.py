"""`Cloud` is the base class through which a fake provider checks, creates, updates and deletes resources.

It accepts anything; others here check inputs against the SDK's types, or stand for Kubernetes and for
Trainyard's own resource types.
"""

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rehearsal import limits, sdk
from rehearsal.tables import table
from rehearsal.wire import has_unknown

_QUANTITY = re.compile(r"\.(limits|requests|capacity|hard)\[|\.sizeLimit$")
"""Pattern of paths with Kubernetes quantities: the API also takes numbers, the SDK's types only texts."""
Properties = Mapping[str, Any]
Refusal = tuple[str, str]
"""Property and error message."""


@dataclass(frozen=True)
class RequestedResource:
    """A resource in the engine's request."""

    token: str
    """Type token: `aws:ec2/vpc:Vpc`."""
    name: str
    """Logical name."""
    inputs: Properties
    outputs: Properties = field(default_factory=dict)
    """Outputs of the existing resource; empty before its creation."""
    id: str = ""
    default_tags: Mapping[str, str] = field(default_factory=dict)
    """Tags that the provider adds to every taggable resource."""


@dataclass(frozen=True)
class CreatedResource:
    """Answer of a cloud after a creation: ID and outputs."""

    id: str
    outputs: Properties
    """Outputs of the resource besides its inputs."""


class RefusedError(Exception):
    """The cloud refuses a request."""


class Cloud:
    """One cloud, or what takes its place: this one accepts any input and stores nothing."""

    def __init__(
        self,
        outputs: Mapping[str, Properties] = MappingProxyType({}),
        replacements: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        """`outputs`: type → what a creation adds. `replacements`: type (or `gcp:*`) → properties whose change
        makes a new resource.
        """
        self._outputs = outputs
        self._replacements = replacements

    def check(self, _resource: RequestedResource) -> Iterable[Refusal]:
        """Find inputs that the cloud would refuse; parts of them may be unknown."""
        return ()

    def autoname(self, _token: str) -> str | None:
        """Return the property that the provider fills in where the program gives no name."""
        return None

    def replaces(self, token: str) -> Sequence[str]:
        """Return the properties whose change makes a new resource: `vpcId`, `vpcConfig.subnetIds`."""
        rules = self._replacements
        return (*rules.get(token, ()), *rules.get(f"{token.partition(':')[0]}:*", ()))

    def changing_outputs(self, _token: str) -> Sequence[str]:
        """Return the outputs whose value any update may change; a preview shows them as unknown."""
        return ()

    def example_outputs(self, token: str) -> Properties:
        """Return examples of the outputs that the cloud will add; a preview shows them as unknown."""
        return self._outputs.get(token, {})

    def planned_outputs(self, _resource: RequestedResource) -> Properties:
        """Return the outputs that a preview knows and that differ from the inputs."""
        return {}

    def create(self, resource: RequestedResource) -> CreatedResource:
        """Make it. Raises `RefusedError`."""
        return CreatedResource(
            f"{resource.name}-{uuid.uuid4().hex[:8]}", self._outputs.get(resource.token, {})
        )

    def exists(self, _resource: RequestedResource) -> bool:
        """Whether it is still there."""
        return True

    def update(self, resource: RequestedResource, _inputs: Properties) -> Properties:
        """Change it in place, and return its outputs. Raises `RefusedError`."""
        return self._outputs.get(resource.token, {})

    def delete(self, resource: RequestedResource) -> None:
        """Remove it; one that does not exist is fine. Raises `RefusedError`."""

    def answer(self, _token: str, arguments: Properties) -> Properties:
        """Answer a call of the program."""
        return arguments

    def unproven(self, _package: str) -> Mapping[str, Sequence[str]]:
        """Return checks that were not possible: a sentence → types of resources, or the whole package."""
        return {}


class Typed(Cloud):
    """A cloud known by its SDK: inputs must fit the SDK's types, and the cloud's limits of names and tags."""

    def __init__(
        self,
        outputs: Mapping[str, Properties] = MappingProxyType({}),
        replacements: Mapping[str, Sequence[str]] = MappingProxyType({}),
    ) -> None:
        super().__init__(outputs, replacements)
        self.untyped: set[str] = set()
        """Types that no SDK knows (custom resources): nothing was checked of them."""

    def check(self, resource: RequestedResource) -> Iterable[Refusal]:
        try:
            found = sdk.problems(resource.token, resource.inputs)
            refused = [(path, reason) for path, reason in found if not _QUANTITY.search(path)]
            return refused or list(limits.problems(resource.token, resource.inputs))
        except sdk.NoTypesError:
            self.untyped.add(resource.token)
            return ()

    def unproven(self, package: str) -> Mapping[str, Sequence[str]]:
        return {
            "values that are plain strings in the SDK: only their types are checked": [package],
            **self._of_no_sdk(),
        }

    def _of_no_sdk(self) -> Mapping[str, Sequence[str]]:
        if not self.untyped:
            return {}
        return {"custom resources, whose schema the cluster has": sorted(self.untyped)}


def changed(old: Properties, new: Properties) -> list[str]:
    """Return the properties at the top that differ, sorted."""
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def at(properties: Properties, path: str) -> Any:
    """Return the value at a dotted path; None where there is none."""
    value: Any = properties
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def replacing(rules: Sequence[str], old: Properties, new: Properties) -> list[str]:
    """Return the changed paths that require a replacement; unknown values count as changed."""
    return [
        path
        for path in rules
        if at(old, path) != at(new, path) and (at(old, path) is not None or not has_unknown(at(new, path)))
    ]


class Kubernetes(Typed):
    """Fake cluster: objects are identified by namespace and name, so a new one adopts an existing one."""

    def __init__(self, replacements: Mapping[str, Sequence[str]] = MappingProxyType({})) -> None:
        """`replacements`: those of custom resources, besides Kubernetes' own."""
        super().__init__({}, {**table("rehearsal", "replacements"), **replacements})

    def unproven(self, _package: str) -> Mapping[str, Sequence[str]]:
        return self._of_no_sdk()

    def create(self, resource: RequestedResource) -> CreatedResource:
        metadata = resource.inputs.get("metadata") or {}
        parts = [metadata.get("namespace"), metadata.get("name") or resource.name]
        return CreatedResource("/".join(part for part in parts if part), {})


class Own(Cloud):
    """This project's own resources: each takes what exists already."""

    def create(self, resource: RequestedResource) -> CreatedResource:
        return CreatedResource(resource.name, self._outputs.get(resource.token, {}))
