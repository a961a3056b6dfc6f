"""Checks of the stack file's `network` section: names, addresses, namespaces, ports and teams of egress
destinations.
"""

from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Network

from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.network import NetworkSpec
from infra.stackfile.queue import TeamSpec

Teams = tuple[TeamSpec, ...]

_LINK_LOCAL, _LOOPBACK, _MULTICAST_AND_RESERVED = map(
    IPv4Network, ("169.254.0.0/16", "127.0.0.0/8", "224.0.0.0/3")
)
_PLATFORM = (
    "aws-dranet",
    "cluster-autoscaler",
    "csi-driver-nfs",
    "dra-driver-nvidia-gpu",
    "gpu-operator",
    "jobset-system",
    "kube-amd-gpu",
    "kube-system",
    "kubeflow",
    "kubeflow-system",
    "kueue-system",
    "mpi-operator",
    "nvidia-network-operator",
    "trainyard-admission",
    "trainyard-logs",
    "trainyard-storage",
)


def egress_is_named_once(network: NetworkSpec) -> Iterator[Finding]:
    """The name tells reviewers the purpose of a rule."""
    counts = Counter(each.name for each in network.egress)
    for index, each in enumerate(network.egress):
        if counts[each.name] > 1:
            path = ("network", "egress", index, "name")
            yield path, repr(each.name), "a name that no other entry has", "rename or remove one of them"


def egress_is_routable(network: NetworkSpec) -> Iterator[Finding]:
    """Link-local addresses are the node's: its metadata service has the node's own credentials."""
    for index, each in enumerate(network.egress):
        for closed in (_LINK_LOCAL, _LOOPBACK, _MULTICAST_AND_RESERVED):
            if each.cidr and each.cidr.subnet_of(closed):
                allowed = f"a network outside of {closed}"
                fix = (
                    "leave it out: these are always closed; the cloud's pod identity endpoint is open already"
                )
                yield ("network", "egress", index, "cidr"), str(each.cidr), allowed, fix


def egress_excludes_teams_and_operators(network: NetworkSpec, teams: Teams) -> Iterator[Finding]:
    """Teams are closed to each other; operators' webhooks and metrics are for the API server only."""
    own = [f"team-{team.name}" for team in teams]
    for index, each in enumerate(network.egress):
        if each.namespace in (*own, *_PLATFORM):
            allowed = "a namespace that is neither a team's nor the platform's"
            fix = "run the service in a separate namespace"
            yield ("network", "egress", index, "namespace"), repr(each.namespace), allowed, fix


def egress_ports_are_given_once(network: NetworkSpec) -> Iterator[Finding]:
    """A port that is listed twice is most likely a typing error."""
    for index, each in enumerate(network.egress):
        for position, port in enumerate(each.ports):
            if port in each.ports[:position]:
                path = ("network", "egress", index, "ports", position)
                yield path, str(port), "each port once", "remove it, or write the port that was meant"


def egress_is_of_teams_of_the_stack(network: NetworkSpec, teams: Teams) -> Iterator[Finding]:
    """A rule for a team that does not exist would open nothing."""
    known = [team.name for team in teams]
    for index, each in enumerate(network.egress):
        for position, name in enumerate(each.teams):
            path = ("network", "egress", index, "teams", position)
            if name not in known:
                yield unknown(path, name, known, "a team of this stack")
            elif name in each.teams[:position]:
                yield path, repr(name), "each team once", "remove one of the two"


CHECKS = Checks(__name__)
