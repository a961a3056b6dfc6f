"""Plans: the resources that a program declares, recorded with Pulumi's mocks."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pulumi
from pulumi.runtime import rpc
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks, set_mocks
from pulumi.runtime.stack import run_pulumi_func

from infra.common.artifacts import ROOT, Artifacts
from infra.common.quantities import whole_numbers
from infra.common.target_registry import target_of
from infra.program import declare
from infra.sdk_overhead import forget_programs_before, reduce_overhead
from infra.stackfile import Stack
from infra.targets.base import PoolSettings
from tests.infra.targets.aws.answers import computed, identity
from tests.infra.targets.azure import answers as azure
from tests.infra.targets.gcp import answers as gcp

reduce_overhead()  # as the program has it
ExistingOutputs = Mapping[str, Mapping[str, Any]]
IMAGE = "trainyard.local/training:000000000000"
TRAINING_ENV = Path("/opt/trainyard-env")
EMBEDDED = {
    "endpoint": "https://10.89.0.1:6443",
    "caCertificate": "ca",
    "kubeconfig": "kubeconfig",
    "objectStoreAccessKey": "access",
    "objectStoreSecretKey": "secret",
}


@dataclass(frozen=True)
class Registration:
    """A resource, as the program registers it with the engine."""

    urn: str
    type: str
    name: str
    inputs: Mapping[str, Any]
    dependencies: tuple[str, ...]
    deleted_with: str
    provider: str
    secret_outputs: tuple[str, ...]
    protect: bool
    retained: bool
    ignored: tuple[str, ...]
    """Properties whose changes are ignored (`ignore_changes`)."""
    replaced_on: tuple[str, ...]
    """Properties whose changes replace the resource (`replace_on_changes`)."""
    depends_on: Mapping[str, tuple[str, ...]]
    """Property → URNs of the resources whose outputs it depends on."""
    wire: Any = field(compare=False, repr=False)
    """The inputs as policies get them, with markers for unknown and secret values."""


class _PlanMocks(Mocks):
    """Returns a resource's inputs, and those computed outputs that other resources use."""

    def __init__(self, preview: bool, existing: ExistingOutputs) -> None:
        self._preview, self._existing = preview, existing

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[Any, Any]]:
        if args.name in self._existing:
            return str(args.resource_id), {**args.inputs, **self._existing[args.name]}
        if self._preview:
            return "", azure.shaped(args.inputs) if args.typ.startswith("azure-native:") else dict(
                args.inputs
            )
        made = EMBEDDED if args.typ.endswith(":EmbeddedCluster") else {}
        if args.typ.startswith("aws:"):
            return identity(args.typ, args.name), {
                **args.inputs,
                **computed(args.typ, args.name, args.inputs),
            }
        if args.typ.startswith("gcp:"):
            return identity(args.typ, args.name), {
                **args.inputs,
                **gcp.computed(args.typ, args.name, args.inputs),
            }
        if args.typ.startswith("azure-native:"):
            return azure.identity(args.typ, args.name), {
                **azure.shaped(args.inputs),
                **azure.computed(args.typ, args.name, args.inputs),
            }
        if args.typ.endswith(":CksCluster"):
            made = {"apiServerEndpoint": f"0a1b2c-{args.name}.k8s.eu-south-04a.coreweave.app"}
        return f"{args.name}-id", {**args.inputs, **made}

    def call(self, args: MockCallArgs) -> tuple[dict[Any, Any], list[tuple[str, str]] | None]:
        # Called for an existing cluster, for its certificate, which no property has.
        if args.token == azure.CREDENTIALS and not self._preview:
            return azure.credentials(args.args["resourceName"]), []
        raise AssertionError(f"a plan must be known without look-ups, but the program called {args.token}")


class _Monitor(MockMonitor):
    def __init__(self, preview: bool, existing: ExistingOutputs) -> None:
        super().__init__(_PlanMocks(preview, existing))
        self.registered: list[Registration] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 -- the protocol's name
        register: Callable[[Any], Any] = super().RegisterResource
        answer = register(request)
        registration = Registration(
            # Without stack and project, which the mocks make up.
            urn=answer.urn.split("::", 2)[2],
            type=request.type,
            name=request.name,
            inputs=whole_numbers(rpc.deserialize_properties(request.object)),
            dependencies=tuple(sorted(urn.split("::", 2)[2] for urn in request.dependencies)),
            deleted_with=request.deletedWith.split("::", 2)[-1],
            provider=request.provider,
            secret_outputs=tuple(request.additionalSecretOutputs),
            protect=request.protect,
            retained=request.retainOnDelete,
            ignored=tuple(request.ignoreChanges),
            replaced_on=tuple(request.replaceOnChanges),
            depends_on={
                name: tuple(urn.split("::", 2)[2] for urn in origins.urns)
                for name, origins in request.propertyDependencies.items()
            },
            wire=request.object,
        )
        self.registered.append(registration)
        return answer


@dataclass(frozen=True)
class Plan:
    """The resources of a program, sorted by type and name, and its outputs."""

    resources: tuple[Registration, ...]
    outputs: Mapping[str, Any] = field(default_factory=dict)

    def named(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """Return name → inputs of the resources of a kind: `ClusterQueue`."""
        return {each.name: each.inputs for each in self.resources if each.type.endswith(f":{kind}")}


def artifacts(rendered: Path) -> Artifacts:
    """Return this clone's artifacts, with fixed values for those that differ between hosts."""
    here = Artifacts.from_environment()
    return Artifacts(here.charts, IMAGE, TRAINING_ENV, here.images, rendered, here.published, here.digests)


def record(
    program: Callable[[], Mapping[str, Any]],
    *,
    preview: bool = False,
    existing: ExistingOutputs = MappingProxyType({}),
) -> Plan:
    """Run a program with mocks; in a preview, computed outputs are unknown.

    `existing`: logical name → outputs of the resources that the program reads.
    """
    monitor = _Monitor(preview, existing)
    outputs: dict[str, Any] = {}

    async def run() -> None:
        forget_programs_before()
        answers = _PlanMocks(preview, existing)
        set_mocks(answers, project="trainyard", stack="test", preview=preview, monitor=monitor)
        await run_pulumi_func(lambda: outputs.update(program()))
        plain = await pulumi.Output.from_input(outputs).future()
        outputs.update(plain or {})

    asyncio.run(run())
    urns = [each.urn for each in monitor.registered]
    assert len(urns) == len(set(urns)), "the engine refuses duplicates"
    return Plan(tuple(sorted(monitor.registered, key=lambda each: each.urn)), outputs)


def plan(stack: Stack, rendered: Path, *, preview: bool = False) -> Plan:
    """Return the plan of a stack."""
    return record(lambda: declare(stack, artifacts(rendered)), preview=preview)


def cluster_plan(stack: Stack, rendered: Path) -> Plan:
    """Return the plan of only the target's part of a stack, without rendering charts."""

    def program() -> dict[str, Any]:
        target_of(stack.target.kind).cluster_class()(stack, artifacts(rendered))
        return {}

    return record(program)


def pools_of(stack: Stack, rendered: Path) -> Mapping[str, PoolSettings]:
    """Return the settings of each pool that the target passes to the platform."""
    pools: dict[str, PoolSettings] = {}

    def program() -> dict[str, Any]:
        pools.update(target_of(stack.target.kind).cluster_class()(stack, artifacts(rendered)).pools)
        return {}

    record(program)
    return pools


def stack_file(name: str) -> Path:
    """Return a stack file of the repository."""
    return ROOT / "stacks" / f"Pulumi.{name}.yaml"
