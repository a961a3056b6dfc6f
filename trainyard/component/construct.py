"""Constructs a component from the engine's request: decodes its inputs and options, declares it, and returns
a response or a status with all problems.
"""

import asyncio
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import pulumi
from google.protobuf import json_format
from pulumi.runtime import settings
from pulumi.runtime.proto import errors_pb2, provider_pb2, status_pb2

from engine.provider.components import REFUSED
from infra.common.quantities import whole_numbers
from infra.errors import InputError, Problem, TrainyardError
from infra.sdk_overhead import reduce_overhead
from infra.stackfile.answers import KeyPath, answered, answers_to, overrides, show, without_secrets
from infra.stackfile.source import NAMESPACE
from policies.config import EvaluatedStack as Run
from trainyard.component.components import COMPONENTS, Component, Kind

reduce_overhead()
# Imported after it: the SDK's server imports by name the functions that `reduce_overhead` replaces.
from pulumi.provider.provider import ConstructResult  # noqa: E402
from pulumi.provider.server import ProviderServicer, _contains_outputs  # noqa: E402
from pulumi.runtime.rpc import (  # noqa: E402
    _special_output_value_sig,
    _special_secret_sig,
    _special_sig_key,
    contains_unknowns,
)
from pulumi.runtime.stack import wait_for_rpcs  # noqa: E402

INVALID_ARGUMENT = 3
"""Code of google.rpc for invalid arguments; the engine reads the details of a status with it."""


def construct(request: bytes, engine: str) -> tuple[int, bytes]:
    """Declare the requested component; return the exit code, and a response or a status."""
    asked = provider_pb2.ConstructRequest.FromString(request)
    try:
        response = asyncio.run(_construct(asked, engine))
    except TrainyardError as error:
        return REFUSED, _status(error).SerializeToString()
    return 0, response.SerializeToString()


async def _construct(request: provider_pb2.ConstructRequest, engine: str) -> provider_pb2.ConstructResponse:
    settings.reset_options(
        organization=request.organization or "organization",
        project=request.project or None,
        stack=request.stack or None,
        parallel=request.parallel or None,
        engine_address=engine,
        monitor_address=request.monitorEndpoint,
        preview=request.dryRun,
    )
    await settings._load_monitor_feature_support()  # type: ignore[no-untyped-call]
    pulumi.runtime.config.set_all_config(dict(request.config), list(request.configSecretKeys))
    kind = COMPONENTS[request.type]
    inputs = await ProviderServicer._construct_inputs(request.inputs, request.inputDependencies)
    marked = json_format.MessageToDict(request.inputs).get(kind.key)
    if secrets := list(_secrets_in(marked, (kind.key,))):
        kind.on_secrets(secrets)
    given = {name: await _known(value) for name, value in inputs.items()}
    run = Run(request.project, request.stack, request.dryRun, dict(request.config))
    parts = None
    if given.setdefault(kind.key, None) is not pulumi.UNKNOWN:
        given[kind.key] = _answered(given[kind.key], kind, run, request.configSecretKeys)
        parts = kind.read(given, run)
    component = Component(kind, request.name, run, _options(request), request.providers)
    await component.declare(parts)
    result = ConstructResult(urn=component.urn, state=component.outputs)
    response = await ProviderServicer._construct_response(None, result)  # type: ignore[arg-type]
    await wait_for_rpcs()
    return response


async def _known(value: Any) -> Any:  # noqa: ANN401 -- whatever the user wrote
    """Return an input's value; UNKNOWN where a part of it is known only after `up`."""
    if not _contains_outputs(value):  # the usual case; an Output would start a task for each part
        return pulumi.UNKNOWN if contains_unknowns(value) else value
    output = pulumi.Output.from_input(value)
    return await output.future() if await output.is_known() else pulumi.UNKNOWN


def _secrets_in(value: Any, path: KeyPath) -> Iterator[str]:  # noqa: ANN401 -- JSON
    """Yield the paths of values that a program has marked as secret, by the protocol's marks."""
    if isinstance(value, list):
        for index, part in enumerate(value):
            yield from _secrets_in(part, (*path, index))
    elif isinstance(value, Mapping):
        mark = value.get(_special_sig_key)
        if mark == _special_secret_sig or (mark == _special_output_value_sig and value.get("secret")):
            yield show(path)
        else:
            parts = {"": value.get("value")} if mark == _special_output_value_sig else value
            for key, part in parts.items():
                yield from _secrets_in(part, (*path, key) if key else path)


def _answered(given: Any, kind: Kind, run: Run, secret: Collection[str]) -> Any:  # noqa: ANN401 -- JSON
    """Return the input with the answers to `pulumi new`, and report their changes."""
    data, section = whole_numbers(given), f"{NAMESPACE}{kind.key}"
    for each in overrides(data, answers_to(data, without_secrets(run.config, secret), section), section):
        pulumi.log.info(str(each))
    return answered(data, answers_to(data, run.config, section))


def _options(request: provider_pb2.ConstructRequest) -> pulumi.ResourceOptions:
    """Read the caller's options; the SDK's own function fails at `deleted_with` before its 3.249."""
    deleted_with, request.deletedWith = request.deletedWith, ""
    options = ProviderServicer._construct_options(request)
    if deleted_with:
        options.deleted_with = pulumi.resource.DependencyResource(deleted_with)
    return options


def _status(error: TrainyardError) -> status_pb2.Status:
    """Return the status that the engine shows: each problem at its property."""
    status = status_pb2.Status(code=INVALID_ARGUMENT, message=_summary(error))
    details = errors_pb2.InputPropertiesError()
    for problem in error.problems if isinstance(error, InputError) else ():
        details.errors.add(property_path=problem.path, reason=_reason(problem))
    if details.errors:
        status.details.add().Pack(details)
    else:
        status.message = str(error)
    return status


def _summary(error: TrainyardError) -> str:
    count = len(error.problems)
    return f"{count} problem{'s' if count > 1 else ''}; nothing was declared"


def _reason(problem: Problem) -> str:
    where = f"{problem.location}: " if problem.location else ""
    return f"{where}got {problem.got}; allowed: {problem.allowed}; fix: {problem.fix}"
