"""Makes boto3 clients for moto, which replace IDs of existing resources, and validates requests with
botocore's models of the AWS API: types, enums, limits, patterns.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.model import ListShape, MapShape, OperationModel, Shape, StringShape, StructureShape
from botocore.validate import ParamValidator
from moto import mock_aws  # noqa: F401 -- before the first client, which moto could not intercept

from rehearsal.aws.requests import SELF, Request
from rehearsal.wire import UNKNOWN

SHOWN = 12
"""Maximum number of allowed values that a message lists in full."""
motos_ids: dict[str, str] = {}
"""AWS ID in the stack → ID that moto generated; callers use only the first."""
_making = threading.Lock()
"""Lock for making clients: a boto3 session is not thread-safe for that."""


@cache
def _session() -> Any:
    """Return the session of all clients: each new session reads megabytes of endpoints."""
    core = botocore.session.Session(session_vars={"profile": (None, None, None, None)})
    for file in ("config_file", "credentials_file"):
        core.set_config_variable(file, os.devnull)
    return boto3.Session(botocore_session=core)


@cache
def client(service: str, region: str) -> Any:
    """Return a client with fake keys, which only moto accepts.

    It ignores the user's configuration (a profile, another endpoint): moto answers only at AWS's own
    addresses, and a request to any other address would leave the host.
    """
    keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}  # moto's own convention
    unknown: Any = {"ignore_configured_endpoint_urls": True}  # the stubs lack this option
    config = Config(retries={"total_max_attempts": 1}, **unknown)
    if service == "iam" and region.startswith("us-gov-"):
        # moto cannot derive the partition from AWS's own address, iam.us-gov.amazonaws.com.
        given = {"endpoint_url": f"https://iam.{region}.amazonaws.com"}
    else:
        given = {}
    with _making:
        made = _session().client(service, region_name=region, config=config, **keys, **given)
    made.meta.events.register("provide-client-params", _by_motos_ids)
    made.meta.events.register("after-call", _by_aws_ids)
    return made


def _by_motos_ids(params: Mapping[str, Any], **_: object) -> Any:
    return _replaced(params, motos_ids) if motos_ids else None


def _by_aws_ids(parsed: dict[str, Any], **_: object) -> None:
    if motos_ids:
        parsed |= _replaced(parsed, {ours: theirs for theirs, ours in motos_ids.items()})


def _replaced(value: Any, ids: Mapping[str, str]) -> Any:
    """Put others in place of IDs, wherever a request or an answer names one."""
    if isinstance(value, Mapping):
        return {key: _replaced(each, ids) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each, ids) for each in value]
    if isinstance(value, str):
        for old, new in ids.items():
            value = value.replace(old, new)
    return value


def operation(request: Request, region: str) -> OperationModel:
    """Return the model of a request's operation."""
    meta = client(request.service, region).meta
    model: OperationModel = meta.service_model.operation_model(meta.method_to_api_mapping[request.operation])
    return model


def problems(request: Request, region: str) -> Iterator[tuple[str, str]]:
    """Find violations of the models, as (path, problem); unknown values are accepted."""
    shape = operation(request, region).input_shape
    assert isinstance(shape, StructureShape)
    report = ParamValidator().validate(_without_unknown(shape, request.parameters), shape)
    if report.has_errors():
        yield "", f"{request.operation}: {report.generate_report()}"
    yield from _values(shape, request.parameters, "")


def _values(shape: Shape, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and (UNKNOWN in value or SELF in value):
        return
    if isinstance(shape, StringShape):
        yield from _text(shape, value, path)
    elif isinstance(shape, StructureShape) and isinstance(value, Mapping):
        for key in sorted(value.keys() & shape.members.keys()):
            yield from _values(shape.members[key], value[key], f"{path}.{key}" if path else key)
    elif isinstance(shape, MapShape) and isinstance(value, Mapping):
        for key, each in value.items():
            yield from _values(shape.value, each, f"{path}[{key!r}]")
    elif isinstance(shape, ListShape) and isinstance(value, list):
        for index, each in enumerate(value):
            yield from _values(shape.member, each, f"{path}[{index}]")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        most = shape.metadata.get("max")
        if most is not None and value > most:
            yield path, f"got {value!r}; at most {most} is allowed"


def _text(shape: StringShape, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, str):
        return
    if shape.enum and value not in shape.enum:
        yield path, f"got {value!r}; allowed are {_some(shape.enum, value)}"
    most, pattern = shape.metadata.get("max"), shape.metadata.get("pattern")
    if most is not None and len(value) > most:
        yield path, f"got {len(value)} characters; at most {most} are allowed"
    expression = _compiled(pattern) if pattern else None
    if expression and not expression.search(value):
        yield path, f"got {value!r}; what matches {pattern} is allowed"


def _some(allowed: Sequence[str], got: str) -> str:
    """Return the allowed values; of many, those that are most similar to the given one."""
    if len(allowed) <= SHOWN:
        return ", ".join(allowed)
    near = get_close_matches(got, allowed, n=3, cutoff=0) or allowed[:3]
    return f"{', '.join(near)} and {len(allowed) - len(near)} more"


@cache
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Compile a pattern of Java's; None for what Python's expressions do not have."""
    try:
        return re.compile(f"^(?:{pattern})$", re.DOTALL)
    except re.error:
        return None


def _without_unknown(shape: Shape, value: Any) -> Any:
    """Put something of the right type where a value is not known yet."""
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        members = shape.members
        return {
            key: _without_unknown(members[key], each) if key in members else each
            for key, each in value.items()
        }
    if isinstance(shape, ListShape) and isinstance(value, list):
        return [_without_unknown(shape.member, each) for each in value]
    if isinstance(value, str) and value == UNKNOWN and shape.type_name != "string":
        return {"integer": 1, "long": 1, "boolean": True, "list": [], "structure": {}, "map": {}}.get(
            shape.type_name, value
        )
    return value
