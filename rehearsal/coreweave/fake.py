"""The CoreWeave target's fake for rehearsals (`FAKE`): validates inputs by the SDK's types, fakes node pools
as Kubernetes objects, and returns which networks reach the API server.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rehearsal.cloud import Kubernetes, Properties, Typed
from rehearsal.fake import Fake, RunningFake, Stack
from rehearsal.leaks import SECRET
from rehearsal.reach import ANYWHERE, DeclaredControlPlane
from rehearsal.tables import table

OUTPUTS: Mapping[str, Mapping[str, Any]] = {
    "coreweave:index/cksCluster:CksCluster": {"apiServerEndpoint": "rehearsal.k8s.invalid"}
}
"""Type → outputs that CoreWeave adds to its inputs."""


@contextmanager
def _start(_stack: Stack, _folder: Path) -> Iterator[RunningFake]:
    rules = table(__package__, "replacements")
    clouds = {"coreweave": Typed(OUTPUTS, rules), "kubernetes": Kubernetes(rules)}
    yield RunningFake(clouds, variables={"COREWEAVE_API_TOKEN": f"{SECRET}-coreweave"})


def _networks(cluster: Properties) -> Sequence[str]:
    return ANYWHERE if cluster.get("public") else ()


CONTROL_PLANE = DeclaredControlPlane(
    "coreweave:index/cksCluster:CksCluster",
    _networks,
    "target.public_endpoint",
    "CKS, private clusters: docs.coreweave.com/support/cks/articles/"
    "how-do-i-access-the-kubernetes-api-if-my-cluster-is-private",
)
FAKE = Fake(_start, control_plane=CONTROL_PLANE)
