"""The Google Cloud target's fake for rehearsals (`FAKE`): starts a fake project; returns which networks reach
the API server.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rehearsal.cloud import Properties
from rehearsal.fake import Fake, RunningFake, Stack
from rehearsal.filled import Filled
from rehearsal.gcp.project import GcpAnswers, GcpProject
from rehearsal.reach import ANYWHERE, DeclaredControlPlane

PACKAGE = "gcp"


@contextmanager
def _start(stack: Stack, folder: Path) -> Iterator[RunningFake]:
    scope = stack["target"]["project"], stack["target"]["region"]
    plugin = Filled("trainyard:gcp:NodePoolSize", "nodePool", folder / PACKAGE)
    yield RunningFake(
        {PACKAGE: GcpProject(*scope), "trainyard": plugin}, GcpAnswers(folder / PACKAGE, *scope)
    )


def _networks(cluster: Properties) -> Sequence[str]:
    """Return who reaches it: by its DNS name all whom IAM authorizes, by its address who is authorized."""
    config = cluster.get("controlPlaneEndpointsConfig") or {}
    if (config.get("dnsEndpointConfig") or {}).get("allowExternalTraffic"):
        return ANYWHERE
    if (cluster.get("privateClusterConfig") or {}).get("enablePrivateEndpoint"):
        return ()
    authorized = cluster.get("masterAuthorizedNetworksConfig")
    return ANYWHERE if authorized is None else [each["cidrBlock"] for each in authorized["cidrBlocks"]]


CONTROL_PLANE = DeclaredControlPlane(
    "gcp:container/cluster:Cluster",
    _networks,
    "target.access.dns_endpoint",
    "GKE, network isolation: docs.cloud.google.com/kubernetes-engine/docs/concepts/network-isolation",
)
FAKE = Fake(_start, control_plane=CONTROL_PLANE)
