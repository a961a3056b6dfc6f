"""`trainyard:local:ReadyNodes`: waits until every node of an embedded cluster is Ready."""

from engine.paths import Paths
from engine.provider.resource import Failure, HandlerProgress, Inputs, Outputs, WaitResource


class ReadyNodes(WaitResource):
    """The cluster starts and ends its nodes; this waits, so that objects are declared in the meantime.

    A node that fails later is handled by the cluster.
    """

    TYPE = "trainyard:local:ReadyNodes"
    REPLACES = frozenset({"cluster"})

    def check(self, inputs: Inputs) -> list[Failure]:
        given = inputs.get("cluster")
        return [] if isinstance(given, str) else [Failure("cluster", f"{given!r}: the name of a cluster")]

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["cluster"])

    def create(self, inputs: Inputs, progress: HandlerProgress) -> Outputs:
        # Imported late: the engine waits for the plugin to start.
        from local.cluster.cluster import EmbeddedCluster
        from local.toolchain import Toolchain, load_versions

        paths = Paths.from_environment()
        toolchain = Toolchain(paths, load_versions(), progress)
        EmbeddedCluster.load(
            inputs["cluster"], paths=paths, toolchain=toolchain, progress=progress
        ).await_nodes()
        return {}
