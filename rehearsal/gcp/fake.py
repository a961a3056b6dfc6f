"""Google Cloud, known by its SDK and by the discovery documents of its API."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rehearsal.cloud import Properties
from rehearsal.fake import Fake, Stack, Started
from rehearsal.filled import Filled
from rehearsal.gcp.project import Answers, Project
from rehearsal.reach import ANYWHERE, ControlPlane

PACKAGE = "gcp"


@contextmanager
def _start(stack: Stack, folder: Path) -> Iterator[Started]:
    place = stack["provider"]["project"], stack["provider"]["region"]
    plugin = Filled("trainyard:gcp:NodePoolSize", "nodePool", folder / PACKAGE)
    yield Started({PACKAGE: Project(*place), "trainyard": plugin}, Answers(folder / PACKAGE, *place))


def _networks(cluster: Properties) -> Sequence[str]:
    """Return who reaches it: by its DNS name everybody whom IAM lets in, by its address who is authorized."""
    config = cluster.get("controlPlaneEndpointsConfig") or {}
    if (config.get("dnsEndpointConfig") or {}).get("allowExternalTraffic"):
        return ANYWHERE
    if (cluster.get("privateClusterConfig") or {}).get("enablePrivateEndpoint"):
        return ()
    authorized = cluster.get("masterAuthorizedNetworksConfig")
    return ANYWHERE if authorized is None else [each["cidrBlock"] for each in authorized["cidrBlocks"]]


CONTROL_PLANE = ControlPlane(
    "gcp:container/cluster:Cluster",
    _networks,
    "provider.access.dns_endpoint",
    "GKE, network isolation: docs.cloud.google.com/kubernetes-engine/docs/concepts/network-isolation",
)
FAKE = Fake(_start, control_plane=CONTROL_PLANE)
