# ruff: noqa: N802 -- methods are named by the protocol
"""The real engine on a project in a folder, with fake providers."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import yaml
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2

from engine.paths import Paths
from engine.progress import for_stream
from engine.provider.operations import OperationThreads
from engine.provider.service import ProviderService
from infra.common.artifacts import ROOT
from infra.stackfile import load
from local.toolchain import Toolchain, load_versions
from rehearsal.fake import fake_of
from rehearsal.fake_provider import FakeProvider
from rehearsal.leaks import CREDENTIALS
from rehearsal.rehearse import ANY_VERSION, with_common
from tests.e2e.rehearsed import plain_environment
from tests.processes import capture
from trainyard.stack.parts import PACKAGE_PARTS

PLUGIN = {"providers": [{"name": "trainyard", "path": str(ROOT / ".trainyard/bin")}]}
"""Our provider from this clone; `pulumi package add` has separate tests."""


class OwnFakeProvider(FakeProvider):
    """A fake of our provider's resources; its schema and its components are the real ones."""

    def Attach(self, request: plugin_pb2.PluginAttach, context: grpc.ServicerContext) -> empty_pb2.Empty:
        self.provider = ProviderService(request.address, OperationThreads(), {})
        return super().Attach(request, context)

    def GetSchema(
        self, request: provider_pb2.GetSchemaRequest, context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        return self.provider.GetSchema(request, context)

    def Construct(
        self, request: provider_pb2.ConstructRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConstructResponse:
        return self.provider.Construct(request, context)


class FakeKubernetesProvider(FakeProvider):
    """A fake of a cluster, with the schema of the real Kubernetes provider."""

    def GetSchema(
        self, request: provider_pb2.GetSchemaRequest, context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        binaries = ROOT / ".trainyard/bin"
        command = [f"{binaries}/pulumi", "package", "get-schema", f"{binaries}/pulumi-resource-kubernetes"]
        output = capture(command, cwd="/", check=True)
        return provider_pb2.GetSchemaResponse(schema=output.stdout)


FAKES: Mapping[str, type[FakeProvider]] = {"kubernetes": FakeKubernetesProvider, "trainyard": OwnFakeProvider}


@dataclass(frozen=True)
class ProjectEngine:
    """The engine's commands on the stack `dev` of a project."""

    project: Path
    environment: Mapping[str, str]

    def pulumi(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return capture(["pulumi", *words], cwd=self.project, env=dict(self.environment), timeout=600)

    def preview(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Preview a program that uses the package."""
        file = self.project / "Pulumi.yaml"
        program = yaml.safe_load(file.read_text())
        program["plugins"] = PLUGIN
        program.pop("packages", None)
        file.write_text(yaml.safe_dump(program, sort_keys=False))
        self.pulumi("stack", "init", "dev")
        return self.pulumi("preview", "-s", "dev", "--suppress-progress", *options)


def installed(state: Path, *parts: str) -> dict[str, str]:
    """The toolchain's variables with a separate state and these parts installed (default: the package's)."""
    paths = Paths.from_environment({**os.environ, "TRAINYARD_STATE": str(state)})
    toolchain = Toolchain(paths, load_versions(), for_stream())
    toolchain.ensure(*parts or PACKAGE_PARTS)
    return toolchain.environment()


@contextmanager
def engine_for(
    project: Path, folder: Path, *, own: bool = False, shared: bool = False
) -> Iterator[ProjectEngine]:
    """Run the engine with fakes for what the stack file `dev` needs.

    `own`: with a fake of our provider too. `shared`: for existing clusters, if the stack file declares none.
    """
    variables = {**plain_environment(folder), **installed(folder / "state"), **CREDENTIALS}
    with ExitStack() as opened:
        clouds: dict[str, Any] = with_common({}) if shared else {}
        if not shared and (file := project / "stacks/Pulumi.dev.yaml").exists():
            stack = load(file)
            data = stack.model_dump(mode="json", by_alias=True)
            started = opened.enter_context(fake_of(stack.target.kind).start(data, folder / "made"))
            variables |= started.variables
            clouds = with_common(started.clouds)
        made = {
            package: opened.enter_context(
                FAKES.get(package, FakeProvider)([package], ANY_VERSION, cloud=cloud, folder=folder / package)
            )
            for package, cloud in clouds.items()
            if own or package != "trainyard"
        }
        attached = ",".join(f"{package}:{each.port}" for package, each in made.items())
        yield ProjectEngine(project, {**variables, "PULUMI_DEBUG_PROVIDERS": attached})
