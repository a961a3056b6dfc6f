"""The `target` section of a local stack: an embedded cluster, a kind cluster or a kube context."""

from ipaddress import IPv4Network
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Discriminator, Field, Tag

from infra.stackfile.base import Cidr, Spec
from infra.stackfile.target import ClusterOnHost, ContextCluster, TargetSpec


def _shape(value: Any) -> str:  # noqa: ANN401 -- pydantic hands over whatever the user wrote
    return "context" if isinstance(value, dict | ContextCluster) else "name"


LocalClusterChoice = Annotated[
    Annotated[Literal["embedded", "kind"], Tag("name")] | Annotated[ContextCluster, Tag("context")],
    Discriminator(_shape),
]


class LocalNetworkSpec(Spec):
    """Address ranges of the embedded cluster, inside separate network namespaces."""

    pod_cidr: Cidr = Field(default=IPv4Network("10.244.0.0/16"), description="CIDR of pods")
    service_cidr: Cidr = Field(default=IPv4Network("10.96.0.0/16"), description="CIDR of Services")
    node_cidr: Cidr = Field(default=IPv4Network("10.89.0.0/24"), description="CIDR of nodes")


class LocalSpec(TargetSpec):
    """A Kubernetes cluster on this host, with simulated accelerators."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = "the volume is a folder of this host: copy it"

    USUAL_CLAIM: ClassVar[str] = "20Gi"
    USUAL_STORE: ClassVar[str] = "20Gi"

    kind: Literal["local"]
    cluster: LocalClusterChoice = Field(
        default="embedded",
        description="an embedded cluster, a kind cluster, or an existing one as {context: NAME}",
    )
    network: LocalNetworkSpec = Field(default=LocalNetworkSpec(), description="address ranges")
    data_dir: str | None = Field(
        default=None,
        pattern=r"^/.+",
        description="absolute path of the folder for checkpoints and other data; default:"
        " `$TRAINYARD_STATE/<stack>/data`",
    )

    @property
    def on_host(self) -> ClusterOnHost | None:
        """Network and data folder of the embedded cluster; None for any other."""
        if self.cluster != "embedded":
            return None
        return ClusterOnHost(self.network.node_cidr, self.data_dir)
