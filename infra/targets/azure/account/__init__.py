"""`AzureAccount`: preflight, state backend, deploy role and finder of the Azure subscription that a stack
names.
"""

from collections.abc import Sequence
from typing import cast

from infra.clients.azure import AzureClient, NotAskedError, by_command_line
from infra.stackfile import Stack
from infra.targets.account import Preflight
from infra.targets.azure.account import backend, preflight, rights
from infra.targets.azure.account.find import Ask, AzureFinder
from infra.targets.azure.stackfile.target import AzureSpec
from infra.targets.backend import BackendSetup, StateLocation
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline

CHECKED = "subscription, features, machines by zone and quotas, but not permissions"


class AzureAccount:
    """The subscription that a stack names."""

    def preflight(self, stack: Stack) -> Preflight:
        """Ask for what `up` needs, changing nothing."""
        try:
            found = tuple(preflight.problems(stack, cast(AzureSpec, stack.target), by_command_line))
        except NotAskedError as error:
            return Preflight(CHECKED, why_unreadable=f"Azure: {error}")
        return Preflight(CHECKED, found)

    def state_location(self, stack: Stack, bucket: str, region: str) -> StateLocation:
        """Return where the engine's state would be stored; the bucket is a storage account's name."""
        spec = cast(AzureSpec, stack.target)
        return StateLocation(bucket, region or spec.region, dict(spec.tags))

    def make_backend(self, stack: Stack, location: StateLocation) -> BackendSetup:
        """Make the storage account and the key of the engine's state, or put right what exists."""
        spec = cast(AzureSpec, stack.target)
        return backend.make(location, spec, AzureClient.of_user(spec.subscription))

    def deploy_role(
        self, stack: Stack, declared: Sequence[DeclaredResource], pipeline: Pipeline
    ) -> DeployRole:
        """Return trust and custom role of a pipeline, by the stack's resources."""
        return rights.deploy_role(stack, cast(AzureSpec, stack.target), declared, pipeline)

    def finder(self, stack: Stack, ask: Ask | None = None) -> AzureFinder:
        """Return what looks here for resources of a stack."""
        spec = cast(AzureSpec, stack.target)
        return AzureFinder(stack.name, spec.subscription, ask or AzureClient.of_user(spec.subscription).find)
