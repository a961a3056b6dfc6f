"""Creates what control plane, pools and storage depend on: resource groups, identities, network, private
endpoints, keys, disk encryption.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from infra.targets.azure.cluster.identity import Identities, grant, make_identities, node_rights
from infra.targets.azure.cluster.keys import Keys, make_disk_encryption, make_keys
from infra.targets.azure.cluster.network import Network, PrivateEndpoints, make_network
from infra.targets.azure.cluster.scope import Groups, Scope, make_groups


@dataclass(frozen=True)
class ClusterDeps:
    """Groups, network, identities, keys; and the role assignments that must exist before the cluster does."""

    groups: Groups
    network: Network
    identities: Identities
    keys: Keys
    endpoints: PrivateEndpoints
    disks: pulumi.Output[str]
    """ID of the disk encryption set."""
    rights: Sequence[pulumi.Resource]


def make_dependencies(scope: Scope) -> ClusterDeps:
    """Create the dependencies in order."""
    groups = make_groups(scope)
    identities = make_identities(scope, groups)
    network = make_network(scope, groups.cluster)
    endpoints = PrivateEndpoints(scope, groups.cluster, network)
    keys = make_keys(scope, groups, identities, endpoints)
    disks = make_disk_encryption(scope, groups.cluster, identities, keys)
    rights = [*node_rights(scope, identities), *_network_rights(scope, identities, network)]
    return ClusterDeps(groups, network, identities, keys, endpoints, disks, rights)


def _network_rights(scope: Scope, identities: Identities, network: Network) -> list[pulumi.Resource]:
    """The control plane creates nodes and API server addresses in the subnets of the network."""
    subnets = {"nodes": network.nodes, "api-server": network.api_server}
    return [
        grant(scope, f"control-plane-{role}-subnet", identities.control_plane, "Network Contributor", subnet)
        for role, subnet in subnets.items()
    ]
