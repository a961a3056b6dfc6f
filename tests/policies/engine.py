"""The real engine with fake providers and the policy pack, for resources that a test declares."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import yaml
from google.protobuf import json_format
from pulumi import automation
from pulumi.runtime import _grpc_settings

from rehearsal.fake_provider import FakeProvider

REPOSITORY = Path(__file__).resolve().parents[2]
PACK = REPOSITORY / "policies"
PACKAGES = ("aws", "gcp", "azure-native", "azure", "aws-native", "coreweave", "kubernetes", "command")
PROJECT = "guarded"

CHANNEL_OPTIONS = _grpc_settings._GRPC_CHANNEL_OPTIONS
# A program still calls an engine that a violation has ended, and gRPC shares that failure between all
# channels to the port for some seconds: calls to the next engine with this port would fail at once.
CHANNEL_OPTIONS.append(("grpc.use_local_subchannel_pool", 1))


@dataclass(frozen=True)
class Verdict:
    """One message of the pack in a run."""

    policy: str
    resource: str
    """Logical name; empty for violations of the whole stack."""
    level: str
    message: str


@dataclass(frozen=True)
class PolicyRun:
    """Output and result of a preview or an update."""

    succeeded: bool
    output: str
    verdicts: tuple[Verdict, ...]
    created: tuple[str, ...]
    """Logical names of the resources that the fakes created."""
    state: Mapping[str, Mapping[str, Any]]
    """Logical name → properties of the resources at the end."""

    def refused(self, level: str = "mandatory") -> set[tuple[str, str]]:
        """Return (policy, resource) of the verdicts of a level."""
        return {(verdict.policy, verdict.resource) for verdict in self.verdicts if verdict.level == level}

    def message(self, policy: str, resource: str) -> str:
        """Return the text of one verdict."""
        return next(v.message for v in self.verdicts if (v.policy, v.resource) == (policy, resource))


def declare(resource_type: str, name: str, **props: Any) -> pulumi.CustomResource:
    """Declare a resource of any type by its token."""
    return pulumi.CustomResource(resource_type, name, props)


class PolicyEngine:
    """Runs inline programs in a private folder; previews, which change no state, share one stack."""

    def __init__(self, folder: Path) -> None:
        self._reused: automation.Stack | None = None
        self._salt: Mapping[str, Any] = {}
        self.work = folder / "work"
        self.home = folder / "home"
        bin_folder = folder / "bin"
        bin_folder.mkdir(parents=True)
        host = bin_folder / "pulumi-language-python"
        host.write_text(
            f'#!/bin/sh\nPYTHONPATH={REPOSITORY} exec {sys.executable} -m engine.language_host "$@"\n'
        )
        host.chmod(0o755)
        self.environment = {
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "PULUMI_HOME": str(self.home),
            "PULUMI_CONFIG_PASSPHRASE": "test",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_AUTOMATION_API_SKIP_VERSION_CHECK": "true",
            "AWS_REGION": "",
            "AWS_DEFAULT_REGION": "",
        }

    def run(
        self,
        program: Callable[[], None],
        *,
        operation: str = "preview",
        config: Mapping[str, Any] | None = None,
        pack_config: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> PolicyRun:
        """Preview or update the program as a new stack, under the pack."""
        output: list[str] = []
        verdicts: list[Verdict] = []
        with FakeProvider(PACKAGES) as fake_provider:
            stack = self._stack(program, config or {}, {**fake_provider.environment(), **(environment or {})})
            settings = self.work / "pack.json"
            settings.write_text(json.dumps(pack_config or {}))
            try:
                getattr(stack, operation)(
                    policy_packs=[str(PACK)],
                    policy_pack_configs=[str(settings)],
                    on_output=output.append,
                    on_event=lambda event: verdicts.extend(_verdicts(event)),
                    color="never",
                    **options,
                )
                succeeded = True
            except automation.CommandError as error:
                output.append(str(error))
                succeeded = False
            if operation != "preview":
                self._reused = None  # its state is no longer empty
            created = tuple(_name(urn) for urn in fake_provider.created)
            state = {
                identity.rpartition("-")[0]: json_format.MessageToDict(properties)
                for identity, properties in fake_provider.state.items()
            }
        return PolicyRun(succeeded, "\n".join(output), tuple(verdicts), created, state)

    def _stack(
        self, program: Callable[[], None], config: Mapping[str, Any], environment: Mapping[str, str]
    ) -> automation.Stack:
        stack = self._reused or self._fresh()
        self._reused = stack
        for left in self.work.glob("*.json"):
            left.unlink()
        stack.workspace.program = program
        stack.workspace.env_vars = {**self.environment, **environment}
        (self.work / "Pulumi.test.yaml").write_text(yaml.safe_dump({**self._salt, "config": dict(config)}))
        return stack

    def _fresh(self) -> automation.Stack:
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "state").mkdir(parents=True)
        backend = automation.ProjectBackend((self.work / "state").as_uri())
        project = automation.ProjectSettings(PROJECT, "python", str(self.work), backend=backend)
        options = automation.LocalWorkspaceOptions(
            work_dir=str(self.work), env_vars=self.environment, project_settings=project
        )
        stack = automation.create_stack("test", project_name=PROJECT, program=lambda: None, opts=options)
        self._salt = yaml.safe_load((self.work / "Pulumi.test.yaml").read_text()) or {}
        return stack


def _verdicts(event: automation.EngineEvent) -> Iterator[Verdict]:
    if policy := event.policy_event:
        level = getattr(policy.enforcement_level, "value", policy.enforcement_level)
        yield Verdict(policy.policy_name, _name(policy.resource_urn or ""), level, policy.message)


def _name(urn: str) -> str:
    return urn.rpartition("::")[2]
