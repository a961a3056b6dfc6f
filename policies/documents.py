"""Parses IAM policy documents of AWS, given as text or as data, and of Google Cloud."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from policies.unknowns import PropertyBlock


@dataclass(frozen=True)
class Statement:
    """One statement of a document; single values as lists of one, keys of conditions in lower case."""

    path: str
    effect: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    principals: tuple[str, ...]
    condition: Mapping[str, Mapping[str, tuple[str, ...]]]

    @property
    def allows(self) -> bool:
        return self.effect == "Allow"


def statements(props: PropertyBlock, path: str) -> Iterator[Statement]:
    """Statements of the document at `path`.

    Raises `UnknownProperty` where it is not known at preview, ValueError where it is no JSON.
    """
    document = props.get(path)
    if document is None:
        return
    data = json.loads(document) if isinstance(document, str) else document.plain()
    items = data.get("Statement", [])
    for index, item in enumerate(items if isinstance(items, list) else [items]):
        principal = item.get("Principal", {})
        named = principal.values() if isinstance(principal, Mapping) else [principal]
        yield Statement(
            path=f"{props.at(path)}.Statement[{index}]",
            effect=item.get("Effect", "Allow"),
            actions=_actions(item),
            resources=_texts(item.get("Resource", [])),
            principals=tuple(text for value in named for text in _texts(value)),
            condition={
                operator: {key.lower(): _texts(values) for key, values in keys.items()}
                for operator, keys in item.get("Condition", {}).items()
            },
        )


def bindings(props: PropertyBlock) -> Iterator[PropertyBlock]:
    """Bindings of a role to members on Google Cloud: the resource itself, and those of its `policyData`.

    Raises `UnknownProperty` where it is not known at preview, ValueError where it is no JSON.
    """
    yield props
    document = json.loads(props.get("policyData", "{}"))
    for index, binding in enumerate(document.get("bindings", [])):
        yield PropertyBlock(binding, f"{props.at('policyData')}.bindings[{index}]")


def _actions(item: Mapping[str, Any]) -> tuple[str, ...]:
    """All actions but some are a wildcard to allow them, and are not all where they are denied."""
    is_wildcard = "NotAction" in item and item.get("Effect") != "Deny"
    return _texts(item.get("Action", "*" if is_wildcard else []))


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else (str(value),)
