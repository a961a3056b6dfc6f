"""`trainyard:gcp:NodePoolSize`: sets how many nodes a GKE node pool should have, without waiting for the
nodes.

The creation of a node pool fails after 35 minutes if it asks for nodes that Compute Engine lacks
(hashicorp/terraform-provider-google#10121). So the pool is created empty, and this resource resizes it
afterwards: its managed instance groups keep trying while nodes are missing.

GKE's autoscaler would not: it adds nodes to a pool below its minimum only when a pod waits
(kubernetes/autoscaler#2288).
"""

import re

from engine.provider import group_size
from engine.provider.group_size import GroupSize
from engine.provider.resource import HandlerProgress, Inputs, Outputs, ReadResult, ResourceNotFound
from infra.clients.gcp import GcpClient, GcpRefusedError

CONTAINER = "https://container.googleapis.com/v1"
_BUSY = re.compile(
    r"(Operation \S+|Cluster) is currently |running incompatible operation|Too many operations"
)
"""GKE's messages while another operation is in progress on the cluster, with status 400 or 429
(hashicorp/terraform-provider-google#3650, #7638, rancher/gke-operator#509,
hashicorp/terraform-provider-google#15205). Other refusals with these statuses are final.
"""


class NodePoolSize(GroupSize):
    """Sets a node pool to `size` nodes over `zones` zones, as soon as Compute Engine has capacity."""

    TYPE = "trainyard:gcp:NodePoolSize"
    GROUP_KIND = "node pool"
    ALLOWED = "a node pool that can be resized"
    STRING_INPUTS = ("nodePool",)
    INTEGER_INPUTS = ("size", "zones")
    BUSY_TIMEOUT_SECONDS = 45 * 60
    """Longer than an operation that waits for nodes, which ends after 35 minutes."""

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["nodePool"])

    def show_command(self, inputs: Inputs) -> str:
        return "gcloud container operations list"

    def resize(self, inputs: Inputs) -> None:
        per_zone = inputs["size"] // inputs["zones"]
        url = f"{CONTAINER}/{inputs['nodePool']}:setSize"
        try:
            GcpClient.of_user().ask("POST", url, {"nodeCount": per_zone})
        except GcpRefusedError as error:
            busy = bool(_BUSY.search(error.message))
            raise group_size.ResizeRefusedError(f"{error.status}: {error.message}", busy=busy) from None

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        if GcpClient.of_user().find(f"{CONTAINER}/{inputs['nodePool']}") is None:
            raise ResourceNotFound
        # Missing nodes are not drift.
        return ReadResult(inputs, outputs)
