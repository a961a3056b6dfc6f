"""`trainyard:local:EmbeddedCluster`: creates, reads, updates and removes a cluster of processes on this host,
and creates its object store's keys.
"""

import json
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from engine.paths import Paths
from engine.provider.resource import (
    Failure,
    HandlerProgress,
    Inputs,
    Outputs,
    ReadResult,
    ResourceHandler,
    ResourceNotFound,
)
from infra.errors import InputError
from local.cluster.files import write

if TYPE_CHECKING:
    from local.cluster.cluster import ClusterInfo
    from local.cluster.cluster import EmbeddedCluster as Cluster

KEYS = frozenset({"objectStoreAccessKey", "objectStoreSecretKey"})


class EmbeddedCluster(ResourceHandler):
    """Resource type with the inputs of `local.cluster.ClusterConfig`; data outlive the cluster.

    The cluster's code is imported when it is first needed: the engine waits for the plugin to start.
    """

    TYPE = "trainyard:local:EmbeddedCluster"
    REPLACES = frozenset({"name", "podCidr", "serviceCidr", "nodeCidr"})
    OUTPUTS = frozenset({"endpoint", "caCertificate", "kubeconfig"}) | KEYS
    SECRETS = frozenset({"kubeconfig"}) | KEYS
    REFRESHES = True

    def check(self, inputs: Inputs) -> list[Failure]:
        from local.cluster.config import ClusterConfig

        try:
            config = ClusterConfig.parse(dict(inputs))
        except InputError as error:
            return [Failure(_property(p.path), f"{p.got}: {p.allowed}") for p in error.problems]
        return [] if config.nodes else [Failure("nodes", "none: at least one node")]

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["name"])

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        """Return when the API serves; `ReadyNodes` waits for the nodes."""
        cluster = _cluster(inputs, progress)
        return _outputs(cluster.config.name, cluster.serve())

    def update(self, old: Inputs, new: Inputs, progress: HandlerProgress) -> Outputs:
        """Bring it to the new config from whatever state it is in, its nodes included."""
        cluster = _cluster(new, progress)
        return _outputs(cluster.config.name, cluster.up())

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        """Report a node that is not ready as absent, so that the next update starts it again."""
        if not Paths.from_environment().cluster_run(inputs["name"]).exists():
            raise ResourceNotFound(inputs["name"])
        status = _cluster(inputs, progress).status()
        ready = {node.name for node in status.nodes if node.state == "ready" and status.state != "down"}
        nodes = [node for node in inputs["nodes"] if node["name"] in ready]
        return ReadResult({**inputs, "nodes": nodes}, outputs)

    def delete(self, inputs: Inputs, progress: HandlerProgress) -> None:
        _cluster(inputs, progress).down()


def _property(path: str) -> str:
    """A problem's path (`cluster.nodes.0.gpus`) as the engine writes it (`nodes[0].gpus`)."""
    return re.sub(r"\.(\d+)", r"[\1]", path.removeprefix("cluster").removeprefix("."))


def _outputs(name: str, info: "ClusterInfo") -> Outputs:
    data = Paths.from_environment().cluster_data(name)
    return {
        "endpoint": info.endpoint,
        "caCertificate": info.ca_pem,
        "kubeconfig": info.kubeconfig,
        **object_store_keys(data / "object-store.json"),
    }


def _cluster(inputs: Inputs, progress: HandlerProgress) -> "Cluster":
    from local.cluster.cluster import EmbeddedCluster as Cluster
    from local.cluster.config import ClusterConfig
    from local.toolchain import Toolchain, load_versions

    paths = Paths.from_environment()
    toolchain = Toolchain(paths, load_versions(), progress)
    return Cluster(ClusterConfig.parse(dict(inputs)), paths=paths, toolchain=toolchain, progress=progress)


def object_store_keys(file: Path) -> dict[str, str]:
    """The object store's keys: generated once and stored (0600) beside the data that they open."""
    if not file.exists():
        # In AWS's own lengths, which S3 clients expect: 20 and 40 characters.
        made = {
            "objectStoreAccessKey": secrets.token_hex(10).upper(),
            "objectStoreSecretKey": secrets.token_urlsafe(30),
        }
        write(file, json.dumps(made))
    keys: dict[str, str] = json.loads(file.read_text())
    return keys
