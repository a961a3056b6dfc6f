"""Creates and removes an embedded cluster's network: namespaces, their bridge, and the veth to the host.

Bridge and routes are inside the control plane's namespace. The host gets an interface `ty-<cluster>` with an
address in the range of the nodes: no rule, no port, no forwarding.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from local.cluster.addresses import AddressPlan, NodeAddress
from local.cluster.commands import program, run

CONTROL = "control"
BRIDGE = "nodes"
ROUTER_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    # Nodes reach each other's pods by way of the control namespace; ICMP redirects are noise.
    "net/ipv4/conf/all/send_redirects": "0",
    "net/ipv4/conf/default/send_redirects": "0",
}


class EmbeddedNetwork:
    """Network of a cluster; all methods are idempotent."""

    def __init__(self, cluster: str, folder: Path) -> None:
        self.folder = folder
        self.host_link = _host_link(cluster)

    def namespace(self, name: str) -> Path:
        """Path at which a machine's network namespace is mounted."""
        return self.folder / name

    def connect_host(self, plan: AddressPlan) -> None:
        """Make the control namespace with its bridge, and the host's link into it."""
        control = self._make_namespace(CONTROL)
        inside = _links(control)
        if BRIDGE not in inside:
            _ip(f"link add {BRIDGE} address {_mac(0)} type bridge", namespace=control)
        if "host" not in inside or self.host_link not in _links():
            self._remove_host_link()
            _ip(f"link add {self.host_link} type veth peer name host netns {control}")
        prefix = plan.node_network.prefixlen
        _ip(
            "link set lo up",
            f"link set host master {BRIDGE} up",
            f"link set {BRIDGE} up",
            f"address replace {plan.control}/{prefix} dev {BRIDGE}",
            f"route replace {plan.service_network} dev {BRIDGE}",
            namespace=control,
        )
        _ip(f"address replace {plan.host}/{prefix} dev {self.host_link}", f"link set {self.host_link} up")

    def connect_node(self, name: str, plan: AddressPlan) -> None:
        """Make a node's namespace and its way to the bridge."""
        node = plan.nodes[name]
        control, own = self.namespace(CONTROL), self._make_namespace(name)
        port = _port(node)
        if "eth0" not in _links(own):
            if port in _links(control):
                _ip(f"link delete {port}", namespace=control)
            peer = f"peer name eth0 address {_mac(node.index + 1)} netns {own}"
            _ip(f"link add {port} type veth {peer}", namespace=control)
        _ip(
            "link set lo up",
            "link set eth0 up",
            f"address replace {node.address}/{plan.node_network.prefixlen} dev eth0",
            f"route replace default via {plan.control}",
            namespace=own,
        )
        _ip(
            f"link set {port} master {BRIDGE} up",
            f"route replace {node.pod_subnet} via {node.address}",
            namespace=control,
        )

    def disconnect_node(self, name: str) -> None:
        """Remove a node's namespace and with it its link."""
        _remove_namespace(self.namespace(name))

    def remove(self) -> None:
        """Remove every namespace and the host's link."""
        # The link first: when its peer is deleted with a namespace, the kernel removes it asynchronously.
        self._remove_host_link()
        for path in list(self.folder.iterdir()) if self.folder.exists() else []:
            _remove_namespace(path)

    def _remove_host_link(self) -> None:
        if self.host_link in _links():
            _ip(f"link delete {self.host_link}")

    def _make_namespace(self, name: str) -> Path:
        path = self.namespace(name)
        if not _is_mounted(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            run(program("unshare"), f"--net={path}", program("true"))
        return path


def host_routes() -> Iterable[tuple[str, str]]:
    """(destination, interface) of every route of the host but the default one."""
    routes = json.loads(run(program("ip"), "-json", "-4", "route", "show"))
    return [(route["dst"], route.get("dev", "")) for route in routes if route["dst"] != "default"]


def run_folders() -> dict[str, Path]:
    """Return the run folder of each embedded cluster on this host, by the name of its link.

    The mounts of their namespaces show it, so a cluster whose makers were killed is found as well.
    """
    runs = (path.parent.parent for path in _mounts() if path.parts[-3:] == ("run", "netns", CONTROL))
    return {_host_link(run.parent.name): run for run in runs}


def _host_link(cluster: str) -> str:
    return f"ty-{cluster}"


def _mac(number: int) -> str:
    """A fixed hardware address, so that ARP caches of other hosts remain valid.

    A bridge would else take the lowest of its ports', and another one whenever a node is added or removed.
    """
    return f"02:74:79:00:00:{number:02x}"


def _port(node: NodeAddress) -> str:
    return f"node{node.index}"


def _remove_namespace(path: Path) -> None:
    while _is_mounted(path):
        run(program("umount"), str(path))
    path.unlink(missing_ok=True)


def _is_mounted(path: Path) -> bool:
    return path in _mounts()


def _mounts() -> set[Path]:
    """Return all mount points."""
    return {Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def _links(namespace: Path | None = None) -> set[str]:
    output = run(*_inside(namespace), program("ip"), "-json", "link", "show")
    return {link["ifname"] for link in json.loads(output)}


def _ip(*commands: str, namespace: Path | None = None) -> None:
    run(*_inside(namespace), program("ip"), "-batch", "-", stdin="\n".join(commands))


def _inside(namespace: Path | None) -> list[str]:
    return [program("nsenter"), f"--net={namespace}", "--"] if namespace else []
