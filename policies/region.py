"""Determines a resource's effective region: its property, else its provider's, else the environment's."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import yaml

from policies.policy import Resource


@dataclass(frozen=True)
class ResourceRegion:
    """The region of a resource, and where it is set."""

    name: str
    source: str
    """Property or variable that decided the region."""


@dataclass(frozen=True)
class RegionRules:
    """Properties and variables by which one provider's resources specify their region."""

    types: str
    own: tuple[str, ...]
    """Properties of the resource with its region; the first that is set counts."""
    provider: tuple[str, ...]
    environment: tuple[str, ...]
    everywhere: tuple[str, ...] = ()
    """Types of resources without a region."""
    required: bool = False
    """Whether a resource for which no region is found is a violation."""


def _rules() -> Iterator[RegionRules]:
    rows = yaml.load((Path(__file__).parent / "regions.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)
    for row in rows:
        lists = {key: tuple(value) for key, value in row.items() if isinstance(value, list)}
        yield RegionRules(**{**row, **lists})


CLOUDS = tuple(_rules())


def cloud_of(resource: Resource) -> RegionRules | None:
    """The rules for this resource; None where its provider has no regions, or its service has none."""
    return _cloud_of(resource.type)


@cache
def _cloud_of(resource_type: str) -> RegionRules | None:
    for cloud in CLOUDS:
        if fnmatchcase(resource_type, cloud.types):
            return None if _is_everywhere(resource_type) else cloud
    return None


def is_everywhere(resource: Resource) -> bool:
    """Whether the resource is of a cloud's service without regions."""
    return _is_everywhere(resource.type)


@cache
def _is_everywhere(resource_type: str) -> bool:
    return any(fnmatchcase(resource_type, pattern) for cloud in CLOUDS for pattern in cloud.everywhere)


def effective_region(resource: Resource, cloud: RegionRules) -> ResourceRegion | None:
    """The region and what decided it; None where nothing states one.

    Raises `UnknownProperty` where the property that decides is not known at preview.
    """
    for name in cloud.own:
        if value := resource.props.get(name):
            return ResourceRegion(canonical(value), name)
    for name in cloud.provider:
        if value := resource.provider.props.get(name):
            return ResourceRegion(canonical(value), f"provider.{name}")
    return _from_environment(resource.stack.environment, cloud.environment)


def _from_environment(environment: Mapping[str, str], names: tuple[str, ...]) -> ResourceRegion | None:
    found = (name for name in names if environment.get(name))
    return next((ResourceRegion(canonical(environment[name]), f"${name}") for name in found), None)


@cache
def canonical(name: str) -> str:
    """Lower case, no spaces, a Google Cloud zone as its region: `Europe-West4-a` is in `europe-west4`."""
    return re.sub(r"^([a-z]+-[a-z]+\d+)-[a-z]$", r"\1", name.lower().replace(" ", ""))
