"""A fake of IAM's evaluation of identity policies with the elements that ours have (IAM User Guide).

A call requests one action on one or more resources, each of which must be allowed. moto evaluates only the
actions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

Keys = Mapping[str, str]


@dataclass(frozen=True)
class IamCall:
    """An action on one resource, and its condition keys."""

    action: str
    arn: str = "*"
    keys: Keys = field(default_factory=dict)


def is_allowed(asked: IamCall, policies: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a statement allows the call; ours have no deny statements."""
    return any(_allows(each, asked) for policy in policies for each in policy["Statement"])


def _allows(statement: Mapping[str, Any], asked: IamCall) -> bool:
    assert statement["Effect"] == "Allow"
    return (
        any(fnmatchcase(asked.action.lower(), each.lower()) for each in _list(statement["Action"]))
        and any(fnmatchcase(asked.arn, each) for each in _list(statement["Resource"]))
        and all(
            _holds(operator, asked.keys.get(key), _list(values))
            for operator, conditions in statement.get("Condition", {}).items()
            for key, values in conditions.items()
        )
    )


def _holds(operator: str, value: str | None, wanted: Sequence[str]) -> bool:
    """Whether a condition holds; a missing key matches only the condition that it is missing."""
    if operator == "Null":
        return (value is None) == (wanted[0] == "true")
    if value is None:
        return False
    if operator in ("StringEquals", "Bool"):
        return value in wanted
    assert operator in ("ArnLike", "ArnEquals", "StringLike"), operator
    return any(fnmatchcase(value, each) for each in wanted)


def _list(value: Any) -> Sequence[str]:
    return [value] if isinstance(value, str) else list(value)
