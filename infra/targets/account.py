"""Interface of a target's cloud account (preflight, state backend, deploy role, finder), and problems that
several accounts report.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, Protocol

from infra.errors import Problem
from infra.stackfile import Stack
from infra.targets.backend import BackendSetup, StateLocation
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline
from infra.targets.finder import Finder

DOCUMENTATION = tuple(map(IPv4Network, ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24")))
"""Networks for examples (RFC 5737), as in the shipped stacks, which contain no real client."""


@dataclass(frozen=True)
class Preflight:
    """Result of the preflight: a description of the checks, and the problems."""

    checked: str
    """Short description of what was checked."""
    problems: tuple[Problem, ...] = ()
    why_unreadable: str = ""
    """Reason why the account could not be read, such as missing credentials; empty where it answered."""


class Account(Protocol):
    """A cloud's account, subscription or project."""

    def preflight(self, stack: Stack) -> Preflight:
        """Ask for what `up` needs, changing nothing."""

    def state_location(self, stack: Stack, bucket: str, region: str) -> StateLocation | None:
        """Return where the engine's state would be stored; None where this release supports no backend."""

    def make_backend(self, stack: Stack, location: StateLocation) -> BackendSetup:
        """Make the bucket and the key of the engine's state, or put right what exists.

        Raises InputError for a bucket of another owner or region.
        """

    def deploy_role(
        self, stack: Stack, declared: Sequence[DeclaredResource], pipeline: Pipeline
    ) -> DeployRole:
        """Return who may assume a pipeline's role, and the minimum rights for the declared resources."""

    def finder(self, stack: Stack, ask: Any = None) -> Finder:  # noqa: ANN401 -- the type differs by target
        """Return what looks here for resources of a stack that the engine's state lacks.

        `ask` replaces the account in a rehearsal, as each target needs it.
        Raises HostError where there are no credentials.
        """


def public_networks_are_real(public_cidrs: Iterable[IPv4Network]) -> Iterator[Problem]:
    """Refuse documentation networks (RFC 5737): from there nobody reaches the API server."""
    for index, network in enumerate(public_cidrs):
        if any(network.overlaps(example) for example in DOCUMENTATION):
            fix = "write the public address of your calls: curl https://checkip.amazonaws.com"
            path = f"target.access.public_cidrs[{index}]"
            yield Problem(path, f"{network}, the example's", "a network of yours", fix)


def private_endpoint_is_unreachable(field: str, opens: str) -> Problem:
    """A private API server in a network that the first `up` makes: no engine can run inside it yet.

    `field` would admit `up` from outside, if set as `opens` describes.
    """
    got = "a private API server, in a network that the first `up` makes: it would stop at the first object"
    allowed = f"{opens}; or a runner in an existing network (network.existing)"
    fix = "write it, bring the cluster up, and remove it again from a runner inside: docs/runners.md"
    return Problem(field, got, allowed, fix)
