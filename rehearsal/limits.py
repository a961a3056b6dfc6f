"""Validates names, labels and tags against the limits of the clouds' APIs."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rehearsal.tables import table
from rehearsal.wire import has_unknown


@dataclass(frozen=True)
class Limit:
    """Limit of a cloud on a name: length and characters."""

    field: str
    """Property with the name."""
    longest: int
    pattern: str = r"[a-zA-Z0-9-]+"

    def takes(self, name: str) -> bool:
        """Whether the cloud takes a name."""
        return len(name) <= self.longest and re.fullmatch(self.pattern, name) is not None


@cache
def limits_of(token: str) -> tuple[Limit, ...]:
    """Return the limits of a type's names: rows of its target's `limits.yaml`."""
    return tuple(Limit(**row) for rows in _tables() for row in rows.get(token, ()))


@cache
def _tables() -> tuple[Mapping[str, Any], ...]:
    files = sorted(Path(__file__).parent.glob("*/limits.yaml"))
    return tuple(table(f"rehearsal.{file.parent.name}", "limits") for file in files)


@dataclass(frozen=True)
class Tagging:
    """Limits of a cloud on a resource's tags or labels: number and patterns."""

    field: str
    most: int
    key: str
    value: str
    """Pattern that a whole value must match; `key` is the pattern of a whole key."""


TAGGING: Mapping[str, Tagging] = {
    # Resource Manager, requirements for labels.
    "gcp": Tagging("labels", 64, r"[a-z][a-z0-9_-]{0,62}", r"[a-z0-9_-]{0,63}"),
    # Azure Resource Manager, tag resources: limitations.
    "azure-native": Tagging("tags", 50, r"[^<>%&\\?/]{1,512}", r".{0,256}"),
}
"""Package → limits of its tags. Others' tags are validated by their fakes, and labels of Kubernetes'
objects by Kubernetes."""


def problems(token: str, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find the names and tags that a cloud would refuse; unknown values are accepted."""
    for limit in limits_of(token):
        name = inputs.get(limit.field)
        if isinstance(name, str) and not has_unknown(name) and not limit.takes(name):
            yield (
                limit.field,
                f"got {name!r}; {limit.pattern}, at most {limit.longest} characters, is allowed",
            )
    tagging = TAGGING.get(token.partition(":")[0])
    if tagging is not None:
        yield from _tag_problems(tagging, inputs.get(tagging.field))


def _tag_problems(tagging: Tagging, tags: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(tags, Mapping):
        return
    if len(tags) > tagging.most:
        yield tagging.field, f"got {len(tags)}; at most {tagging.most} are allowed"
    for key, value in tags.items():
        for text, pattern in ((str(key), tagging.key), (str(value), tagging.value)):
            if not has_unknown(value) and not re.fullmatch(pattern, text):
                yield tagging.field, f"got {text!r}; {pattern} is allowed"
