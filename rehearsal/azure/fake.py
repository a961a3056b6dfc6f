"""`FAKE` is the Azure target's fake for rehearsals: a fake subscription, a fake of the node pool's resize,
and the networks from which a declared AKS cluster lets its API server be reached.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rehearsal.azure.subscription import AzureAnswers, AzureSubscription
from rehearsal.cloud import Properties
from rehearsal.fake import Fake, RunningFake, Stack
from rehearsal.filled import Filled
from rehearsal.reach import ANYWHERE, DeclaredControlPlane

PACKAGE = "azure-native"


@contextmanager
def _start(stack: Stack, folder: Path) -> Iterator[RunningFake]:
    subscription = stack["target"]["subscription"]
    plugin = Filled("trainyard:azure:AgentPoolSize", "agentPool", folder / PACKAGE)
    clouds = {PACKAGE: AzureSubscription(subscription), "trainyard": plugin}
    yield RunningFake(clouds, AzureAnswers(folder / PACKAGE, subscription))


def _networks(cluster: Properties) -> Sequence[str]:
    """Return who reaches a public API server: 0.0.0.0/0, where no range is authorized."""
    profile = cluster.get("apiServerAccessProfile") or {}
    named: Sequence[str] = profile.get("authorizedIPRanges") or ANYWHERE
    return () if profile.get("enablePrivateCluster") else named


CONTROL_PLANE = DeclaredControlPlane(
    "azure-native:containerservice:ManagedCluster",
    _networks,
    "target.access.public_cidrs",
    "AKS, authorized IP ranges: learn.microsoft.com/azure/aks/api-server-authorized-ip-ranges",
)
FAKE = Fake(_start, control_plane=CONTROL_PLANE)
