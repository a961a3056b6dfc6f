"""`EmbeddedCluster`: creates, updates, inspects and removes a Kubernetes cluster of local processes, and
preempts and restores its nodes.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Self

from filelock import FileLock, Timeout

from engine.paths import Paths
from engine.progress import Progress
from infra.clients.kubernetes import Object
from infra.errors import InputError, Problem, TrainyardError
from local.cluster import preflight
from local.cluster.config import ClusterConfig, NodeConfig
from local.cluster.contracts import ArtifactFinder
from local.cluster.events import EventLog
from local.cluster.image_store import ImageStore
from local.cluster.layout import Layout
from local.cluster.objects import GPU, is_ready
from local.cluster.preemption import Preemption, PreemptionRecord
from local.cluster.privileges import check_privileges
from local.cluster.site import ClusterSite

NODE_LOCK_SECONDS = 180.0
"""Timeout for the lock: preemptions of several nodes wait for each other, one or two seconds each."""


@dataclass(frozen=True)
class ClusterInfo:
    """Endpoint and kubeconfig of a cluster."""

    endpoint: str
    ca_pem: str
    kubeconfig: str
    """Text of the kubeconfig, with the administrator's key: a secret."""


@dataclass(frozen=True)
class NodeStatus:
    """Current status of a node."""

    name: str
    pool: str
    state: Literal["ready", "not-ready", "gone"]
    """State of the node; `gone`: the node's processes do not run, as after a preemption."""
    gpus: int
    """Number of simulated GPUs that can be allocated now."""


@dataclass(frozen=True)
class ClusterStatus:
    """Current status of a cluster."""

    name: str
    state: Literal["up", "degraded", "down"]
    endpoint: str
    """URL of the API server; empty when the cluster is down."""
    nodes: tuple[NodeStatus, ...]


class EmbeddedCluster:
    """One cluster on this host.

    Every method first checks what exists, so each can be called after another has crashed.
    """

    def __init__(
        self, config: ClusterConfig, *, paths: Paths, toolchain: ArtifactFinder, progress: Progress
    ) -> None:
        self.config = config
        self.paths = paths
        self.toolchain = toolchain
        self.progress = progress
        self.layout = Layout(paths.cluster_run(config.name))

    @classmethod
    def load(cls, name: str, *, paths: Paths, toolchain: ArtifactFinder, progress: Progress) -> Self:
        """The cluster of this name as it was declared at its last `up`.

        Raises TrainyardError when there is none.
        """
        check_privileges()
        file = Layout(paths.cluster_run(name)).config
        if not file.exists():
            got, fix = "not running", "start it with `trainyard up`"
            raise TrainyardError([Problem(f"cluster {name}", got, "a running cluster", fix)])
        config = ClusterConfig.parse(json.loads(file.read_text()))
        return cls(config, paths=paths, toolchain=toolchain, progress=progress)

    def check(self) -> None:
        """Raise HostError with all that keeps `up` from starting; changes nothing."""
        preflight.check(self.config, self.layout, self.toolchain, self._site().network.host_link)

    def up(self) -> ClusterInfo:
        """Make the cluster as the configuration declares, and wait until every node is Ready; see `serve`."""
        info = self.serve()
        self.await_nodes()
        return info

    def serve(self) -> ClusterInfo:
        """Adopt what runs, start what does not, remove the rest; return when the API serves.

        Raises HostError before anything is started, TrainyardError when a part does not come up.
        """
        self.check()
        site = self._site()
        with self._lock(), self.progress.task(f"cluster {self.config.name}"):
            site.prepare()
            for line in site.attach_volumes():
                self.progress.log(line)
            site.start_control_plane()
            site.start_nodes(self.config.nodes)
        return self.info()

    def await_nodes(self) -> None:
        """Return when every node is Ready. Raises TrainyardError for one that takes too long."""
        site = self._site()
        with self.progress.task(f"nodes of {self.config.name}"):
            site.await_nodes(self.config.nodes)

    def down(self, *, purge: bool = False) -> None:
        """End every process, mount, namespace, link and cgroup of it, and remove its run folder.

        `purge` removes the data as well: checkpoints and the object store.
        """
        check_privileges()
        with self._lock(), self.progress.task(f"cluster {self.config.name} down"):
            self._site().remove()
        if purge:
            shutil.rmtree(self.layout.run.parent, ignore_errors=True)

    def info(self) -> ClusterInfo:
        """Return endpoint and kubeconfig of the cluster, once it has been up."""
        site = self._site()
        return ClusterInfo(site.plan.endpoint, site.credentials.ca_pem, site.credentials.admin_kubeconfig())

    def status(self) -> ClusterStatus:
        """Look at the machines, and at the API where it answers; changes nothing."""
        check_privileges()
        site = self._site()
        if not site.exists:
            return ClusterStatus(self.config.name, "down", "", ())
        reported: dict[str, Object] = {}
        if site.api.is_ready():
            reported = {node["metadata"]["name"]: node for node in site.api.items("/api/v1/nodes")}
        nodes = tuple(_status(site, node, reported.get(node.name)) for node in self.config.nodes)
        state: Literal["up", "degraded"] = (
            "up" if all(node.state == "ready" for node in nodes) else "degraded"
        )
        return ClusterStatus(self.config.name, state, site.plan.endpoint, nodes)

    def preempt(self, node: str, *, notice_seconds: float | None) -> PreemptionRecord:
        """Preempt a node as a cloud preempts a spot instance; returns when its pods have failed.

        `notice_seconds=None` kills it without notice. The record's events are also in `events.jsonl`.
        Raises TrainyardError if the node is started again meanwhile; the new node is not changed.
        """
        check_privileges()
        site = self._site()
        machine = site.node(self._declared(node).name)
        if not machine.is_running():
            fix = f"restore it first: `trainyard local preempt {node} --return`"
            raise InputError([Problem(f"node {node}", "not running", "a running node", fix)])

        def kill() -> None:
            with self._lock(NODE_LOCK_SECONDS):
                machine.stop()

        log = EventLog(self.layout.events)
        return Preemption(node, site.api, log, kill, self._removal(site, node)).run(notice_seconds)

    def restore(self, node: str) -> None:
        """Bring a preempted node back, as a new instance with an empty disk; a no-op while it runs."""
        check_privileges()
        config, site, log = self._declared(node), self._site(), EventLog(self.layout.events)
        with self._lock(NODE_LOCK_SECONDS):
            if site.node(node).is_running():
                return
            site.remove_node(node)
            log.record(node, "returning")
            site.start_nodes([config])
            site.await_nodes([config])
            log.record(node, "returned")

    @contextmanager
    def _removal(self, site: ClusterSite, node: str) -> Iterator[None]:
        """Keep a killed node off for the block, and remove its machine after it.

        The lock is free between the kill and this: another process may have restored the node.
        """
        with self._lock(NODE_LOCK_SECONDS):
            if site.node(node).is_running():
                got, fix = (
                    "started again while it was preempted",
                    f"run `trainyard local preempt {node}` again",
                )
                raise TrainyardError([Problem(f"node {node}", got, "off until it is deleted", fix)])
            yield
            site.remove_node(node)

    def _site(self) -> ClusterSite:
        return ClusterSite(
            self.config, self.layout, self.toolchain, ImageStore(self.paths.cache / "containerd")
        )

    def _declared(self, name: str) -> NodeConfig:
        for node in self.config.nodes:
            if node.name == name:
                return node
        names = ", ".join(node.name for node in self.config.nodes)
        raise InputError([Problem("node", repr(name), names, "name a node of this cluster")])

    @contextmanager
    def _lock(self, wait_seconds: float = 0) -> Iterator[None]:
        """Lock this cluster against other processes; the kernel releases the lock when this one ends."""
        folder = self.layout.run.parent
        folder.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(folder / "lock", timeout=wait_seconds):
                yield
        except Timeout:
            got, fix = "another process is changing it", "wait for it to end, then run this again"
            raise TrainyardError(
                [Problem(f"cluster {self.config.name}", got, "one at a time", fix)]
            ) from None


def _status(site: ClusterSite, node: NodeConfig, reported: Object | None) -> NodeStatus:
    gpus = int((reported or {}).get("status", {}).get("allocatable", {}).get(GPU, 0))
    if not site.node(node.name).is_running():
        return NodeStatus(node.name, node.pool, "gone", 0)
    ready = reported is not None and is_ready(reported)
    return NodeStatus(node.name, node.pool, "ready" if ready else "not-ready", gpus)
