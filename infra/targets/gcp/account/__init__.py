"""`GcpAccount`: preflight, state backend, deploy role and finder of the Google Cloud project that a stack
names.
"""

from collections.abc import Sequence
from typing import cast

from infra.clients.gcp import GcpClient, GcpRefusedError
from infra.errors import HostError
from infra.stackfile import Stack
from infra.targets.account import Preflight
from infra.targets.backend import BackendSetup, StateLocation
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline
from infra.targets.gcp.account import backend, preflight, rights
from infra.targets.gcp.account.find import Ask, GcpFinder
from infra.targets.gcp.stackfile.target import GcpSpec

CHECKED = "account, rights, zones, quotas, reservations and bucket"


class GcpAccount:
    """The project that a stack names."""

    def preflight(self, stack: Stack) -> Preflight:
        """Ask for what `up` needs, changing nothing."""
        try:
            gcp = GcpClient.of_user()
        except HostError:
            login = "gcloud auth application-default login"
            return Preflight(CHECKED, why_unreadable=f"Google Cloud: no credentials (`{login}`)")
        try:
            found = tuple(preflight.problems(stack, cast(GcpSpec, stack.target), gcp))
        except GcpRefusedError as error:
            found = tuple(error.problems)
        return Preflight(CHECKED, found)

    def state_location(self, stack: Stack, bucket: str, region: str) -> StateLocation:
        """Return where the engine's state would be stored."""
        spec = cast(GcpSpec, stack.target)
        return StateLocation(bucket, region or spec.region, dict(spec.labels))

    def make_backend(self, stack: Stack, location: StateLocation) -> BackendSetup:
        """Make the bucket and the key of the engine's state, or put right what exists."""
        return backend.make(location, cast(GcpSpec, stack.target), GcpClient.of_user())

    def deploy_role(
        self, stack: Stack, declared: Sequence[DeclaredResource], pipeline: Pipeline
    ) -> DeployRole:
        """Return trust and custom role of a pipeline, by the stack's resources."""
        return rights.deploy_role(stack, cast(GcpSpec, stack.target), declared, pipeline)

    def finder(self, stack: Stack, ask: Ask | None = None) -> GcpFinder:
        """Return what looks here for resources of a stack."""
        spec = cast(GcpSpec, stack.target)
        return GcpFinder(stack.name, spec.project, spec.region, ask or GcpClient.of_user().find)
