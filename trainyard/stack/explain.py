"""Finds a key of the stack file by its path (`pools.zones`) in the JSON Schema of stack files."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from infra.errors import InputError, Problem, did_you_mean
from infra.stackfile.profiles import PROFILES, SYSTEM, TABLE
from infra.stackfile.source import STACK_KEY
from trainyard.stack.reference import JOB, default_of, type_of

Schema = Mapping[str, Any]
JUDGES: Mapping[str, str] = {
    "target.access": "security-private-endpoint, security-ingress",
    "target.deletion_protection": "security-deletion-protection",
    "target.filesystem": "security-customer-keys, spot-checkpoint-volumes",
    "target.keys": "security-customer-keys",
    "target.kms_key": "security-customer-keys",
    "target.network": "security-data-network",
    "target.region": "residency-region, residency-locations",
    "target.tags": "cost-tags",
    "target.training_image": "kubernetes-images-pinned",
    "pools.capacity": "spot-fallback, cost-capacity-purchases",
    "pools.checkpoint_seconds": "spot-checkpoint-time",
    "pools.fabric": "fabric-lint, fabric-unmixed-pools",
    "pools.machine": "cost-ceilings, fabric-lint",
    "pools.nodes": "cost-ceilings, cost-idle-pools",
    "pools.spot_waiver": "spot-diversified",
    "pools.zones": "spot-diversified, fabric-one-zone",
    "queues.flavors": "spot-queue-fallback",
    "storage.object_store": "security-bucket-companions, residency-copies",
}
"""Beginning of a key's path → policies that look at what it becomes."""
MOST = 100
"""Most characters of an example: a longer section is in the reference."""


@dataclass(frozen=True)
class Key:
    """A key of the stack file, as one or several targets have it."""

    path: str
    type: str
    default: str
    meaning: str
    targets: tuple[str, ...]
    """Targets whose section has the key like this; empty for a key that is the same everywhere."""
    below: tuple[tuple[str, str, str], ...]
    """Name, type and meaning of each key below it."""
    profiles: tuple[str, ...] = ()
    """Its defaults in the profiles, and the target or pool that has them."""

    @property
    def policies(self) -> str:
        """Policies that look at it."""
        found = (names for start, names in JUDGES.items() if f"{self.path}.".startswith(f"{start}."))
        return next(found, "")


def find(schema: Schema, path: str) -> list[Key]:
    """Return what a path of the stack file, or of a job file (`job.nodes`), is: once for each form.

    Raises:
        InputError: no such file has such a key.
    """
    stack: Schema = schema["properties"]["config"]["properties"][STACK_KEY]
    top: Schema = {"anyOf": [stack, {"properties": {"job": JOB}}]}
    places: list[tuple[Schema, Schema, tuple[str, ...]]] = [(top, {}, ())]
    parts = path.replace("[]", "").removeprefix(f"{STACK_KEY}.").split(".")
    for number, part in enumerate(parts):
        objects = [(each, (*kinds, *kind)) for of, _, kinds in places for each, kind in _objects(schema, of)]
        found = [
            (each["properties"][part], each, kinds)
            for each, kinds in objects
            if part in each.get("properties", {})
        ]
        if not found:
            known = sorted({key for each, _ in objects for key in each.get("properties", {})})
            fix = did_you_mean(part, known, f"name one of these: {', '.join(known)}" if known else "")
            at = ".".join(parts[:number]) or "the stack file"
            raise InputError([Problem(path, f"{part!r}", f"a key of {at}", fix)])
        places = found
    forms: dict[Key, list[str]] = {}
    for value, parent, kinds in places:
        form = _described(schema, ".".join(parts), parts[-1], value, parent)
        forms.setdefault(form, []).extend(kinds)
    return [
        replace(form, targets=tuple(dict.fromkeys(kinds)), profiles=tuple(_in_profiles(form.path, kinds)))
        for form, kinds in forms.items()
    ]


def _in_profiles(path: str, kinds: Sequence[str]) -> Iterator[str]:
    """Yield a key's defaults in the profiles, for all targets or these."""
    for section, rows in TABLE.items():
        if not kinds or section.partition(" ")[0] in ("", *kinds):
            for key, row in rows.items():
                if key.replace(SYSTEM, "pools") == path:
                    values = (
                        f"{name} {json.dumps(value)}" for name, value in zip(PROFILES, row, strict=True)
                    )
                    of = " ".join(filter(None, (section, "(system pool)" if SYSTEM in key else "")))
                    yield f"{', '.join(values)}{f'   {of}' if of else ''}"


def _described(schema: Schema, path: str, name: str, value: Schema, parent: Schema) -> Key:
    required = set(parent.get("required", ()))
    below = [
        (key, type_of(each), str(each.get("description", "")))
        for of, _ in _objects(schema, value)
        for key, each in of.get("properties", {}).items()
    ]
    default = default_of(name, value, required).replace("**", "").replace("`", "")
    meaning = str(value.get("description", ""))
    return Key(path, type_of(value), default, meaning, (), tuple(dict.fromkeys(below)))


def _objects(schema: Schema, value: Schema) -> Iterator[tuple[Schema, tuple[str, ...]]]:
    """Yield the objects that a value may be, or has in a list, each with the target that it is of."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        yield from _objects(schema, schema["$defs"][name])
    elif "allOf" in value:
        for each in value["allOf"]:
            kind = each["if"]["properties"]["kind"]["const"]
            yield from ((of, (kind,)) for of, _ in _objects(schema, each["then"]))
    elif several := [*value.get("anyOf", ()), *value.get("oneOf", ())]:
        for each in several:
            yield from _objects(schema, each)
    elif "items" in value:
        yield from _objects(schema, value["items"])
    elif "properties" in value:
        yield value, ()


def example(stacks: Path, key: Key) -> str:
    """Return the key as the first shipped stack file writes it, of a target that has it like this."""
    for file in sorted(stacks.glob("Pulumi.*.yaml")):
        stack = (yaml.safe_load(file.read_text()).get("config") or {}).get(STACK_KEY) or {}
        kind = (stack.get("target") or {}).get("kind", "")
        for value in _values(stack, key.path.split(".")) if not key.targets or kind in key.targets else ():
            name = key.path.rpartition(".")[2]
            text = yaml.safe_dump({name: value}, default_flow_style=True, sort_keys=False, width=1000)
            return f"{text.strip()[1:-1]}   {file.name}"
    return ""


def _values(data: Any, path: Sequence[str]) -> Iterator[Any]:  # noqa: ANN401 -- YAML
    """Yield what stands at a path, in each entry of the lists on the way."""
    if isinstance(data, list):
        for each in data:
            yield from _values(each, path)
    elif not path:
        yield data
    elif isinstance(data, dict) and path[0] in data:
        below = data[path[0]]
        yield from [below] if len(path) == 1 else _values(below, path[1:])


def lines(keys: Sequence[Key], stacks: Path | None = None) -> Iterator[str]:
    """Write keys as text: one block for each form, with an example from a folder of stack files."""
    for index, key in enumerate(keys):
        if index:
            yield ""
        where = f"   (kind: {', '.join(key.targets)})" if key.targets else ""
        yield f"{key.path}{where}"
        yield f"  type     {re.sub(r'`|[(]#[a-z]+[)]|[][]', '', key.type)}"
        if key.default:
            yield f"  default  {key.default}"
        yield from (f"  profile  {each}" for each in key.profiles)
        if stacks and (found := example(stacks, key)) and len(found) <= MOST:
            yield f"  example  {found}"
        if key.policies:
            yield f"  policies {key.policies}"
        yield f"  {key.meaning}"
        if key.below:
            width = max(len(name) for name, _, _ in key.below)
            yield "  keys"
            yield from (f"    {name:<{width}}  {meaning}" for name, _, meaning in key.below)
