"""`AwsAccount`: preflight, state backend, deploy role and finder of the AWS account that a stack names."""

from collections.abc import Sequence
from typing import cast

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from infra.stackfile import Stack
from infra.targets.account import Preflight
from infra.targets.aws.account import backend, preflight, rights
from infra.targets.aws.account.find import AwsFinder, Client
from infra.targets.aws.stackfile.target import AwsSpec
from infra.targets.backend import BackendSetup, StateLocation
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline

CHECKED = "account, rights, zones, quotas, reservations and bucket"


class AwsAccount:
    """The account and region that a stack names."""

    def preflight(self, stack: Stack) -> Preflight:
        """Ask for what `up` needs, changing nothing."""
        if boto3.Session().get_credentials() is None:
            return Preflight(CHECKED, why_unreadable="AWS: no credentials (`aws sso login`)")
        spec = cast(AwsSpec, stack.target)
        try:
            found = tuple(preflight.problems(stack, spec, backend.clients(spec.region)))
        except (ClientError, BotoCoreError, ResponseParserError) as error:  # the last: a proxy answers
            found = (preflight.unasked(error),)
        return Preflight(CHECKED, found)

    def state_location(self, stack: Stack, bucket: str, region: str) -> StateLocation:
        """Return where the engine's state would be stored."""
        spec = cast(AwsSpec, stack.target)
        return StateLocation(bucket, region or spec.region, dict(spec.tags))

    def make_backend(self, stack: Stack, location: StateLocation) -> BackendSetup:
        """Make the bucket and the key of the engine's state, or put right what exists."""
        return backend.make(location, cast(AwsSpec, stack.target).account, backend.clients(location.region))

    def deploy_role(
        self, stack: Stack, declared: Sequence[DeclaredResource], pipeline: Pipeline
    ) -> DeployRole:
        """Return trust and IAM policies of a pipeline's role, by the stack's resources."""
        return rights.deploy_role(stack, cast(AwsSpec, stack.target), declared, pipeline)

    def finder(self, stack: Stack, ask: Client | None = None) -> AwsFinder:
        """Return what looks here for resources of a stack; `ask` gives clients of boto3 by service."""
        spec = cast(AwsSpec, stack.target)
        return AwsFinder(stack.name, spec.region, spec.account, ask or backend.clients(spec.region))
