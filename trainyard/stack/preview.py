"""Lists the resources that a stack declares, by running its program against a mock engine that records
them.
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Any, NoReturn

from pulumi.runtime import rpc
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks, set_mocks
from pulumi.runtime.stack import run_pulumi_func

from infra.common.artifacts import Artifacts
from infra.common.quantities import whole_numbers
from infra.program import declare
from infra.sdk_overhead import forget_programs_before, reduce_overhead
from infra.stackfile import Stack
from infra.targets.deploying import DeclaredResource
from trainyard.stack.parts import ENGINE_PARTS
from trainyard.stack.session import Session


def prepared(session: Session) -> Artifacts:
    """Get what declaring the stack takes: the target's SDK, charts, and helm, which renders them."""
    session.packages.ensure(session.progress)
    session.toolchain.ensure(*ENGINE_PARTS, *session.target.artifacts)
    os.environ["PATH"] = session.toolchain.environment()["PATH"]
    return Artifacts.from_environment()


def declared(stack: Stack, artifacts: Artifacts) -> list[DeclaredResource]:
    """Return every resource that the stack declares; the cloud's answers are unknown."""
    recorder = _Recorder()

    def program() -> None:
        declare(stack, artifacts)

    async def run() -> None:
        forget_programs_before()
        set_mocks(_Unknown(), project="trainyard", stack=stack.name, preview=True, monitor=recorder)
        await run_pulumi_func(program)

    reduce_overhead()
    asyncio.run(run())
    return recorder.declared


def announced(session: Session, artifacts: Artifacts) -> list[Mapping[str, Any]]:
    """Return what an `up` would have, in the form of the engine's events, without an engine.

    `is_known` marks resources that the state has; an `up` would create the others, but for the stack file's
    `existing_objects`.
    """
    engine, name = session.engine, session.stack_name
    there = engine.resources(name) if engine.exists(name) and not engine.is_empty(name) else []
    known = {_identity(each["urn"]) for each in there if not each.get("external")}
    all_own = {"target": session.stack.target.model_copy(update={"existing_objects": ()})}
    return [
        {"type": each.type, "urn": each.urn, "inputs": each.inputs, "is_known": _identity(each.urn) in known}
        for each in declared(session.stack.model_copy(update=all_own), artifacts)
    ]


def _identity(urn: str) -> tuple[str, str]:
    """Return type and name; a state has the types of all parents, the mock engine those of one."""
    *_, types, name = urn.split("::", 3)
    return "$".join(types.split("$")[-2:]), name


class _Unknown(Mocks):
    """Only a resource's declared inputs are known, as at a first preview."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[Any, Any]]:
        # Azure's outputs have identities in another form than its inputs, which the SDK would refuse.
        return "", {} if args.typ.startswith("azure-native:") else dict(args.inputs)

    def call(self, args: MockCallArgs) -> NoReturn:
        raise AssertionError(f"programs make no look-ups, but this one called {args.token}")


class _Recorder(MockMonitor):
    def __init__(self) -> None:
        super().__init__(_Unknown())
        self.declared: list[DeclaredResource] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802, ANN401 -- the protocol's name, untyped
        properties: Mapping[str, Any] = whole_numbers(rpc.deserialize_properties(request.object))
        answer: Any = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        self.declared.append(DeclaredResource(request.type, request.name, properties, answer.urn))
        return answer
