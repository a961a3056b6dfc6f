"""Simulates whether the engine can reach the declared cluster's API server from where it runs.

A cluster's objects are created through its API server. A private one answers nobody outside its network: the
connection is dropped, and the Kubernetes provider reports it after half a minute.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from typing import Any, cast

from infra.errors import InputError, Problem, TrainyardError
from rehearsal.cloud import Cloud, CreatedResource, Properties, RefusedError, RequestedResource

INSIDE = "inside"
ELSEWHERE = "198.51.100.1"
"""Address outside all networks of a stack, as an example of the internet (RFC 5737)."""
ANYWHERE = ("0.0.0.0/0",)
UNREACHABLE = "configured Kubernetes cluster is unreachable"
"""Error message of pulumi-kubernetes (provider/pkg/provider/provider.go)."""
_GUIDE = "docs/runners.md"
_OBJECTS = ("kubernetes:", "trainyard:kubernetes:")
"""Prefixes of resource types that are created through the API server."""


@dataclass(frozen=True)
class Route:
    """A rule that lets the network of a runner connect to a private endpoint."""

    type: str
    opens: Callable[[Properties], bool]
    """Function that tells whether a resource of this type is such a rule."""
    field: str
    """Key of the stack file that makes the stack declare the rule."""


@dataclass(frozen=True)
class DeclaredControlPlane:
    """Access to a cloud's API servers, read from the declared cluster."""

    type: str
    networks: Callable[[Properties], Sequence[str]]
    """Function from the cluster's inputs to outside networks that may connect; none for a private
    endpoint."""
    field: str
    """Key of the stack file that opens the API server to outside networks."""
    source: str
    """Title of the cloud's documentation."""
    route: Route | None = None
    """Rule that a runner inside the network needs; None where the network itself is enough."""


class Reach:
    """Knowledge about access to a stack's API server, used whenever an object of the cluster is touched."""

    def __init__(self, control_plane: DeclaredControlPlane, origin: str) -> None:
        """`origin` is where the engine runs: an address, or `inside`."""
        self.origin = origin
        self._control_plane = control_plane
        self._networks: Sequence[str] | None = None
        self._routed = control_plane.route is None
        self.refused: Problem | None = None
        """Problem that explains why the API server did not answer; None if it has answered every call."""

    def learn(self, token: str, inputs: Properties) -> None:
        """Record a resource that the cloud has created or changed."""
        route = self._control_plane.route
        if token == self._control_plane.type:
            self._networks = self._control_plane.networks(inputs)
        elif route and token == route.type and route.opens(inputs):
            self._routed = True

    def ask(self, token: str) -> None:
        """Connect for an object of the cluster. Raises `RefusedError` where nothing answers."""
        if not token.startswith(_OBJECTS) or self._networks is None or self._answers(self._networks):
            return
        self.refused = self._problem()
        raise RefusedError(
            f"{UNREACHABLE}: unable to load schema information from the API server:"
            ' Get "https://rehearsal.invalid/openapi/v2?timeout=32s": dial tcp 10.64.0.10:443: i/o timeout'
        )

    def _answers(self, networks: Sequence[str]) -> bool:
        if self.origin == INSIDE:
            return self._routed
        return any(ip_address(self.origin) in ip_network(each, strict=False) for each in networks)

    def _problem(self) -> Problem:
        control_plane, route = self._control_plane, self._control_plane.route
        if self.origin == INSIDE and route:
            got, fix = "nothing: a runner's calls are dropped", f"name the runner's network there: {_GUIDE}"
            return Problem(route.field, got, f"the network of `up` ({control_plane.source})", fix)
        takes = ", ".join(self._networks or ()) or "nobody outside of the cluster's network"
        return Problem(
            control_plane.field,
            f"the API server takes connections from {takes}; `up` runs at {self.origin}: i/o timeout",
            f"a network that `up` runs in ({control_plane.source})",
            f"open it in {control_plane.field} and pass your address (--from ADDRESS), or run inside of the"
            f" network (--from inside): {_GUIDE}",
        )

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Put the reason before the engine's errors of the objects that it could not create."""
        try:
            yield
        except TrainyardError as error:
            if self.refused is None:
                raise
            others = [each for each in error.problems if UNREACHABLE not in each.got]
            raise TrainyardError([self.refused, *others], error.exit_code) from error


class Reached:
    """A cloud that reports its changes, and whose clusters' objects need a reachable API server."""

    def __init__(self, cloud: Cloud, reach: Reach) -> None:
        self._cloud = cloud
        self._reach = reach

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cloud, name)

    def create(self, resource: RequestedResource) -> CreatedResource:
        self._reach.ask(resource.token)
        made = self._cloud.create(resource)
        self._reach.learn(resource.token, resource.inputs)
        return made

    def exists(self, resource: RequestedResource) -> bool:
        self._reach.ask(resource.token)
        return self._cloud.exists(resource)

    def update(self, resource: RequestedResource, inputs: Properties) -> Properties:
        self._reach.ask(resource.token)
        outputs = self._cloud.update(resource, inputs)
        self._reach.learn(resource.token, inputs)
        return outputs

    def delete(self, resource: RequestedResource) -> None:
        self._reach.ask(resource.token)
        self._cloud.delete(resource)

    def unproven(self, package: str) -> Mapping[str, Sequence[str]]:
        origin = "inside of the network" if self._reach.origin == INSIDE else f"at {self._reach.origin}"
        assumed = {f"that `up` runs {origin}, which was assumed (--from)": ["the API server"]}
        return {**self._cloud.unproven(package), **(assumed if package == "kubernetes" else {})}


def reached(clouds: Mapping[str, Cloud], reach: Reach) -> dict[str, Cloud]:
    """Wrap the clouds, so that objects need a reachable API server."""
    return {package: cast(Cloud, Reached(cloud, reach)) for package, cloud in clouds.items()}


def origin_of(asked: str, stack: Mapping[str, Any]) -> str:
    """Return the engine's location: the requested one, else the first network that the stack names.

    Raises InputError for a value that is neither an address nor `inside`.
    """
    if not asked:
        named = (stack["target"].get("access") or {}).get("public_cidrs") or [ELSEWHERE]
        return str(ip_network(named[0], strict=False).network_address)
    try:
        return asked if asked == INSIDE else str(ip_address(asked))
    except ValueError:
        allowed = f"{INSIDE}, or the public address of your calls, such as 203.0.113.7"
        fix = "curl https://checkip.amazonaws.com prints yours"
        raise InputError([Problem("--from", repr(asked), allowed, fix)]) from None
