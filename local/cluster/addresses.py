"""Assigns the addresses of nodes, pods and Services from the configuration's three CIDRs; reads and writes
nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from itertools import count

from local.cluster.config import POD_SUBNET_PREFIX, ClusterConfig

API_PORT = 6443
_FIRST_NODE = 16
"""Index of the first node's address; lower ones are the control namespace (1) and the host (2)."""


@dataclass(frozen=True)
class NodeAddress:
    """Addresses of one node."""

    index: int
    """Index that is small and constant while the node is in the config, so that its addresses never
    change."""
    address: IPv4Address
    pod_subnet: IPv4Network


@dataclass(frozen=True)
class AddressPlan:
    """Addresses of control plane, host, nodes, pods and Services."""

    node_network: IPv4Network
    pod_network: IPv4Network
    service_network: IPv4Network
    nodes: Mapping[str, NodeAddress]

    @classmethod
    def of(cls, config: ClusterConfig, indexes: Mapping[str, int]) -> "AddressPlan":
        """Place the nodes of `config`, each by its index."""
        network, pods = IPv4Network(config.node_cidr), IPv4Network(config.pod_cidr)
        nodes = {
            name: NodeAddress(index, network[_FIRST_NODE + index], _pod_subnet(pods, index))
            for name, index in indexes.items()
        }
        return cls(network, pods, IPv4Network(config.service_cidr), nodes)

    @property
    def control(self) -> IPv4Address:
        """The control namespace: API server, DNS, and the router between the nodes."""
        return self.node_network[1]

    @property
    def host(self) -> IPv4Address:
        """The host's end of its one link."""
        return self.node_network[2]

    @property
    def kubernetes_service(self) -> IPv4Address:
        """The API server as pods see it; kube-apiserver takes the first address of the range."""
        return self.service_network[1]

    @property
    def dns_service(self) -> IPv4Address:
        """The DNS server as pods see it."""
        return self.service_network[10]

    @property
    def endpoint(self) -> str:
        """URL of the API server, for the host and the nodes."""
        return f"https://{self.control}:{API_PORT}"


def allocate(names: Iterable[str], taken: Mapping[str, int]) -> dict[str, int]:
    """Give every name an index: the one it has, else the smallest that is free."""
    wanted = list(names)
    assigned = {name: taken[name] for name in wanted if name in taken}
    free = (index for index in count() if index not in set(assigned.values()))
    return {name: assigned[name] if name in assigned else next(free) for name in wanted}


def _pod_subnet(pods: IPv4Network, index: int) -> IPv4Network:
    size = 2 ** (32 - POD_SUBNET_PREFIX)
    return IPv4Network((int(pods.network_address) + index * size, POD_SUBNET_PREFIX))
