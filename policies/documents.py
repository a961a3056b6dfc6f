"""Finds IAM policy documents of AWS in a resource, as text or as data, and reads their statements: what they
allow, to whom, and whether their conditions restrict it.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from policies.networks import is_public
from policies.unknowns import UNKNOWN, PropertyBlock, UnknownProperty, Value

DOCUMENT_KEY = re.compile(
    r"^(assumeRole|access|inline|key|resource|queue|topic)?[pP]olic(y|ies)(Document|Text)?$"
)
"""Keys of documents: where the value is not known, the update judges it."""
RESTRICTING = re.compile(
    r"^(iam:|aws:(principal|source|vpce|viaawsservice|userid|username|resource(tag|org|account)|requesttag)"
    r"|kms:(calleraccount|viaservice)|s3:(dataaccesspoint|existingobjecttag)|sts:externalid"
    r"|elasticfilesystem:accessedviamounttarget|ec2:resourcetag)|:(sub|aud|amr)$"
)
"""Keys of conditions that name callers or resources, in lower case."""


def statements(props: PropertyBlock, path: str = "") -> Iterator[PropertyBlock]:
    """Statements of all documents of a resource, or of the one at `path`; single ones as of a list.

    What is known comes first; then raises `UnknownProperty` for a document that is not known at preview.
    Raises ValueError for a text at `path` that is no JSON.
    """
    if path:
        value, unknown = props.get(path), ""
        found = [(value.data if isinstance(value, PropertyBlock) else value, props.at(path))]
    else:
        found = list(props.remembered("documents", lambda: _documents(props.data, props.path)))
        unknown = next((where for value, where in found if value is UNKNOWN), "")
    for document, where in found:
        if document is not UNKNOWN and document is not None:
            yield from _statements(json.loads(document) if isinstance(document, str) else document, where)
    if unknown:
        raise UnknownProperty(unknown)


def _documents(value: Value, path: str) -> Iterator[tuple[Value, str]]:
    if isinstance(value, str):
        if value.lstrip()[:1] == "{" and '"Statement"' in value:
            yield value, path
    elif isinstance(value, dict):
        if "Statement" in value:
            yield value, path
            return
        for key, item in value.items():
            where = f"{path}.{key}" if path else key
            if item is not UNKNOWN:
                yield from _documents(item, where)
            elif DOCUMENT_KEY.match(key):
                yield item, where
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _documents(item, f"{path}[{index}]")


def _statements(document: Mapping[str, Any], path: str) -> Iterator[PropertyBlock]:
    items = document.get("Statement", [])
    if items is UNKNOWN:
        raise UnknownProperty(f"{path}.Statement")
    for index, item in enumerate(items if isinstance(items, list) else [items]):
        if isinstance(item, Mapping):
            yield PropertyBlock(item, f"{path}.Statement[{index}]")


def allows(statement: PropertyBlock) -> bool:
    """Whether the statement grants something."""
    return bool(statement.get("Effect", "Allow") == "Allow")


def principals(statement: PropertyBlock) -> Iterator[str]:
    """Principals of all kinds."""
    named = statement.get("Principal")
    for kind in named.keys() if isinstance(named, PropertyBlock) else ():
        yield from named.texts(kind)
    if isinstance(named, str):
        yield named


def conditions(statement: PropertyBlock) -> Iterator[tuple[str, str, list[str]]]:
    """Operator, key and values of each condition, the first two in lower case."""
    operators = statement.block("Condition")
    for operator in list(operators.keys()):
        tests = operators.block(operator)
        for key in list(tests.keys()):
            value = tests.entry(key)
            yield (
                operator.lower(),
                key.lower(),
                [str(item) for item in (value if isinstance(value, list) else [value])],
            )


def is_restricted(statement: PropertyBlock) -> bool:
    """Whether a condition names callers or resources: a negative, optional or wild one restricts nothing."""
    return any(
        not re.search(r"not|ifexists$|^null$|^forallvalues", operator) and _names_some(key, values)
        for operator, key, values in conditions(statement)
    )


def is_limited(statement: PropertyBlock, props: PropertyBlock) -> bool:
    """Whether another statement of its document denies the same to all but named callers, as AWS does for
    private APIs: `Deny` where `aws:SourceVpce` is not one of those.
    """
    document = statement.path.rpartition("[")[0]
    return any(
        other.get("Effect") == "Deny"
        and other.path.rpartition("[")[0] == document
        and "*" in list(principals(other))
        and all(
            {*other.texts(part)} & {"*", value}
            for part in ("Action", "Resource")
            for value in statement.texts(part)
        )
        and (tests := list(conditions(other)))
        and all("not" in operator and _names_some(key, values) for operator, key, values in tests)
        for other in statements(props)
    )


def _names_some(key: str, values: list[str]) -> bool:
    return bool(RESTRICTING.search(key)) and all(map(_is_narrow, values))


def _is_narrow(value: str) -> bool:
    if is_public(value):
        return False
    parts = value.split(":")
    meaning = (
        "".join(parts[4:])
        if parts[0] == "arn"
        else re.sub(r"^(repo|project_path|organization|system:serviceaccount):", "", value)
    )
    return bool(re.sub(r"[*?/:]|root|role|user", "", meaning))


def is_broad(target: str) -> bool:
    """Whether a statement's resource is every resource, or every one of a service."""
    parts = target.split(":", 5)
    return not re.sub(r"[*?/:]", "", parts[5] if len(parts) > 5 else target)
