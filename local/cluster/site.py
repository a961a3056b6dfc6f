"""`ClusterSite`: starts and removes an embedded cluster's parts in order: network, control plane, nodes."""

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

from infra.clients.kubernetes import ApiServer
from infra.errors import Problem, TrainyardError
from local.cluster import cgroups, containerd
from local.cluster.addresses import AddressPlan, allocate
from local.cluster.config import ClusterConfig, NodeConfig
from local.cluster.context import ClusterContext
from local.cluster.contracts import ArtifactFinder
from local.cluster.control_plane import EmbeddedControlPlane
from local.cluster.credentials import Credentials
from local.cluster.files import write
from local.cluster.image_store import ImageStore
from local.cluster.images import Archive, import_missing, read_archive
from local.cluster.layout import VERSION, Layout, gate
from local.cluster.machine import ClusterMachine
from local.cluster.network import CONTROL, EmbeddedNetwork
from local.cluster.node import SHARED_FOLDERS, NodeMachine
from local.cluster.objects import apply_dns, apply_node, apply_rights, is_ready, node_path, report_starting
from local.cluster.preemption import fail_pods
from local.cluster.processes import wait_until
from local.cluster.volumes import BoundedVolume

API_SECONDS = 90.0
NODE_SECONDS = 120.0
"""Timeout for a node; like API_SECONDS a limit for slow hosts: on two idle cores both take below 15 s."""


class ClusterSite:
    """Starts and removes the parts of a cluster; the caller holds the cluster's lock."""

    def __init__(
        self, config: ClusterConfig, layout: Layout, artifacts: ArtifactFinder, images: ImageStore
    ) -> None:
        self.config = config
        self.layout = layout
        self.artifacts = artifacts
        self.images = images
        self.network = EmbeddedNetwork(config.name, layout.networks)
        self.control = ClusterMachine(layout.control, self.network.namespace(CONTROL))

    @cached_property
    def plan(self) -> AddressPlan:
        """Addresses of the nodes at the last `prepare`."""
        return AddressPlan.of(self.config, self._indexes())

    @cached_property
    def credentials(self) -> Credentials:
        return Credentials(self.layout.pki, self.plan)

    @cached_property
    def api(self) -> ApiServer:
        return ApiServer.of(self.credentials.admin_kubeconfig(), proxied=False)

    @property
    def exists(self) -> bool:
        """Whether a cluster, or remains of one, exist."""
        return self.layout.indexes.exists()

    def node(self, name: str) -> ClusterMachine:
        """The machine of a node."""
        return ClusterMachine(self.layout.node(name), self.network.namespace(name))

    def prepare(self) -> None:
        """Make the run folder, remove nodes that are no longer declared, give out addresses."""
        self.layout.run.mkdir(parents=True, exist_ok=True)
        self.layout.run.chmod(0o700)
        write(self.layout.version, VERSION)
        self.layout.config.write_text(json.dumps(self.config.to_json()))
        self._unpacker.stop()  # of an `up` that was killed
        names = [node.name for node in self.config.nodes]
        for name in self._node_folders() - set(names):
            self.remove_node(name)
        write(self.layout.indexes, json.dumps(allocate(names, self._indexes())))
        write(self.layout.config, json.dumps(self.config.to_json()))
        write(self.layout.kubeconfig, self.credentials.admin_kubeconfig())
        Path(self.config.data_dir).mkdir(parents=True, exist_ok=True)

    def attach_volumes(self) -> list[str]:
        """Give volumes their sizes; return a line for each that has none, with the reason."""
        nodes_run = any(self.node(node.name).is_running() for node in self.config.nodes)
        return [
            f"{volume.folder}: not limited to {volume.size_gib} GiB: {reason}"
            for volume in self._volumes
            if (reason := volume.attach(nodes_run=nodes_run))
        ]

    def start_control_plane(self) -> None:
        """Start it where it does not run; `start_nodes` waits for it."""
        self.network.connect_host(self.plan)
        parts = EmbeddedControlPlane(self._context)
        spec = parts.spec(self.config.nodes[0].name)
        if not self.control.is_running(spec):
            self.control.stop()
            gate(self.control.folder).unlink(missing_ok=True)
            self.control.start(spec)

    def start_nodes(self, nodes: Sequence[NodeConfig]) -> None:
        """Start these where they do not run, with their images; `await_nodes` waits for them.

        Images are unpacked, and containerd starts, while the API server does; kubelets wait for both: one
        that cannot reach them exits and is restarted, which costs a second of CPU each time.
        """
        for node in nodes:
            self._stock(node)
        started = [node.name for node in nodes if self._start_machine(node)]
        with ThreadPoolExecutor() as pool:
            imports = [pool.submit(self._import_images, node) for node in nodes]
            self._await_api()
            self._declare()
            for name in started:
                report_starting(self.api, name)
            gate(self.layout.control).touch()
            for node, imported in zip(nodes, imports, strict=True):
                imported.result()
                gate(self.layout.node(node.name)).touch()

    def await_nodes(self, nodes: Sequence[NodeConfig]) -> None:
        """Return when they are Ready."""
        for node in nodes:
            self._await_ready(node.name)

    def remove_node(self, name: str) -> None:
        """End a node's machine and remove all it had on this host."""
        machine = self.node(name)
        machine.stop()
        self.network.disconnect_node(name)
        cgroups.remove(f"{self.config.name}/{name}")
        shutil.rmtree(machine.folder, ignore_errors=True)

    def remove(self) -> None:
        """Remove everything but the data."""
        # Also the nodes in the config: someone may have deleted their folders by hand.
        names = self._node_folders() | {node.name for node in self.config.nodes}
        machines = [self.control, self._unpacker, *(self.node(name) for name in names)]
        with ThreadPoolExecutor() as pool:
            list(pool.map(ClusterMachine.stop, machines))
        for volume in self._volumes:
            volume.detach()
        self.network.remove()
        cgroups.remove(self.config.name)
        shutil.rmtree(self.layout.run, ignore_errors=True)

    @property
    def _volumes(self) -> list[BoundedVolume]:
        sizes = self.config.volume_sizes
        return [BoundedVolume(Path(self.config.data_dir, folder), sizes[folder]) for folder in sizes]

    @property
    def _context(self) -> ClusterContext:
        return ClusterContext(self.layout, self.plan, self.credentials, self.artifacts)

    def _start_machine(self, node: NodeConfig) -> bool:
        """Whether it had to be started."""
        self.network.connect_node(node.name, self.plan)
        machine, parts = self.node(node.name), NodeMachine(node.name, self._context)
        [pause] = self._archives(["pause"])
        spec = parts.spec(pause.names[0])
        if machine.is_running(spec):
            return False
        machine.stop()
        gate(machine.folder).unlink(missing_ok=True)
        cgroups.remove(parts.cgroup)
        cgroups.make(parts.cgroup)
        # Never removed: another cluster's nodes may have them as mount points.
        for folder in SHARED_FOLDERS:
            Path(folder).mkdir(parents=True, exist_ok=True)
        machine.start(spec)
        return True

    @property
    def _unpacker(self) -> ClusterMachine:
        return ClusterMachine(self.layout.unpacking, self.network.namespace(CONTROL))

    def _stock(self, node: NodeConfig) -> None:
        """Give a node that is new the images of all nodes, which share them."""
        store = self.layout.node(node.name) / containerd.STORE
        if not store.exists():
            names = sorted({"pause", *(name for each in self.config.nodes for name in each.images)})
            self.images.stock(store, self._archives(names), self._unpacker)

    def _archives(self, names: Iterable[str]) -> list[Archive]:
        return [read_archive(self.artifacts.path(f"image/{name}")) for name in names]

    def _import_images(self, node: NodeConfig) -> None:
        import_missing(self.node(node.name), self._archives(("pause", *node.images)))

    def _await_api(self) -> None:
        if not wait_until(self.api.is_ready, seconds=API_SECONDS):
            raise _late("the API server", API_SECONDS, self.layout.control / "kube-apiserver.log")

    def _declare(self) -> None:
        """Make the API's objects follow the config, so that nodes find themselves described."""
        wait_until(lambda: self.api.find("/api/v1/namespaces/kube-system"), seconds=API_SECONDS)
        apply_rights(self.api)
        apply_dns(self.api, self.plan)
        for node in self.config.nodes:
            apply_node(self.api, node, self.plan)
        declared = {node.name for node in self.config.nodes}
        found = {node["metadata"]["name"] for node in self.api.items("/api/v1/nodes")}
        for name in found - declared:
            self.api.delete(node_path(name))
            fail_pods(self.api, name)

    def _await_ready(self, name: str) -> None:
        if not wait_until(lambda: is_ready(self.api.get(node_path(name))), seconds=NODE_SECONDS):
            raise _late(f"node {name}", NODE_SECONDS, self.layout.node(name) / "kubelet.log")

    def _indexes(self) -> dict[str, int]:
        path = self.layout.indexes
        indexes: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        return indexes

    def _node_folders(self) -> set[str]:
        return {path.name for path in self.layout.nodes.iterdir()} if self.layout.nodes.exists() else set()


def _late(what: str, seconds: float, log: Path) -> TrainyardError:
    got = f"not ready within {seconds:.0f} s; the last error of {log.stem}: {last_error(log)}"
    return TrainyardError([Problem(what, got, "ready", f"read the logs in {log.parent}, then run it again")])


def last_error(log: Path) -> str:
    """Return the last line of a log of Kubernetes with klog's header of an error; `none` without one."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return next((line for line in reversed(lines) if re.match(r"[EF]\d{4} ", line)), "none")
