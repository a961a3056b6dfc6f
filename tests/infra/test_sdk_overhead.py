"""Programs with less overhead of Pulumi's SDK still wait for all resources and raise all errors."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pulumi
import pytest
from pulumi.runtime import stack
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks, set_mocks

from infra import sdk_overhead

logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # the SDK sets it when it starts a program
Wait = Callable[[], Awaitable[None]]
ORIGINAL: Wait = sdk_overhead._wait_for_rpcs
both = pytest.mark.parametrize("wait", [ORIGINAL, sdk_overhead.wait_for_rpcs], ids=["theirs", "ours"])


class CloudMocks(Mocks):
    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[Any, Any]]:
        if args.name == "refused":
            raise RuntimeError("the cloud refused it")
        return f"{args.name}-id", dict(args.inputs)

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], None]:
        return {}, None


def run(program: Callable[[], object], wait: Wait) -> None:
    async def under_the_sdk() -> None:
        sdk_overhead.forget_programs_before()
        set_mocks(CloudMocks(), project="trainyard", stack="test")
        await stack.run_pulumi_func(lambda: void(program()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stack, "wait_for_rpcs", wait)
        asyncio.run(under_the_sdk())


def void(_: object) -> None:
    """Return nothing, as programs do."""


def made(name: str, **inputs: object) -> pulumi.CustomResource:
    return pulumi.CustomResource("test:index:Thing", name, dict(inputs))


@both
def test_a_resource_that_is_declared_after_an_output_is_known_is_awaited(wait: Wait) -> None:
    seen: list[str] = []

    def program() -> None:
        def second(of: str) -> None:
            made("second", of=of).id.apply(seen.append)

        made("first").id.apply(second)

    run(program, wait)
    assert seen == ["second-id"]


@both
def test_a_resource_that_is_refused_fails_the_program(wait: Wait) -> None:
    with pytest.raises(Exception, match="the cloud refused it"):
        run(lambda: [made("first"), made("refused"), made("last")], wait)


@both
def test_an_output_that_fails_fails_the_program(wait: Wait) -> None:
    def fails(_: str) -> None:
        raise ValueError("not a number")

    with pytest.raises(ValueError, match="not a number"):
        run(lambda: made("first").id.apply(fails), wait)


@both
def test_a_resource_that_depends_on_a_refused_one_fails_with_it(wait: Wait) -> None:
    def program() -> None:
        refused = made("refused")
        for _ in range(50):
            refused.id.apply(lambda known: known)

    with pytest.raises(Exception, match="the cloud refused it"):
        run(program, wait)


def test_no_resource_has_the_file_and_line_of_its_declaration() -> None:
    seen: list[Any] = []

    class CountingMonitor(MockMonitor):
        def RegisterResource(self, request: Any) -> Any:  # noqa: N802 -- the protocol's name
            seen.append(request)
            return super().RegisterResource(request)  # type: ignore[no-untyped-call]

    async def program() -> None:
        sdk_overhead.forget_programs_before()
        set_mocks(CloudMocks(), project="trainyard", stack="test", monitor=CountingMonitor(CloudMocks()))
        await stack.run_pulumi_func(lambda: void(made("thing")))

    sdk_overhead.reduce_overhead()
    asyncio.run(program())
    [thing] = (each for each in seen if each.name == "thing")
    assert not thing.HasField("sourcePosition") and not thing.stackTrace.frames
