"""`trainyard:azure:AgentPoolSize`: sets the minimum number of nodes of an autoscaled AKS agent pool, without
waiting for the nodes.

The creation of an agent pool fails if it asks for nodes that Azure lacks (Azure/AKS#1272), or if its count is
below its minimum (kubernetes-sigs/cluster-api-provider-azure#5947). So the pool is created with a minimum and
count of 0, and this resource raises the minimum afterwards, which AKS takes (Azure/AKS#1758).

The autoscaler of AKS then keeps trying to reach the minimum, after evictions too (AKS, "Use the cluster
autoscaler": it enforces the minimum count when nodes are evicted, or the minimum is changed by the API).
"""

from engine.provider import group_size
from engine.provider.group_size import GroupSize
from engine.provider.resource import HandlerProgress, Inputs, Outputs, ReadResult, ResourceNotFound
from infra.clients.azure import AzureClient, AzureRefusedError

VERSION = "2025-09-01"
"""API version that the SDK's AgentPool uses, so that the PUT repeats every property that the SDK has set."""
_BUSY = frozenset({409, 429})
"""HTTP status codes for another running operation on the cluster or on the pool."""


class AgentPoolSize(GroupSize):
    """Sets an agent pool's minimum to `size` nodes, which AKS adds as soon as Azure has capacity."""

    TYPE = "trainyard:azure:AgentPoolSize"
    GROUP_KIND = "agent pool"
    ALLOWED = "an agent pool whose minimum can be raised"
    STRING_INPUTS = ("agentPool",)
    INTEGER_INPUTS = ("size",)
    REFRESHES = True  # an update of the agent pool by azure-native resets the minimum
    BUSY_TIMEOUT_SECONDS = 30 * 60

    def identify(self, inputs: Inputs) -> str:
        return str(inputs["agentPool"])

    def show_command(self, inputs: Inputs) -> str:
        return f"az resource show --ids {inputs['agentPool']}"

    def resize(self, inputs: Inputs) -> None:
        """Raise the minimum, and put all else back as it is."""
        pool_id = inputs["agentPool"]
        try:
            azure = _azure(pool_id)
            pool = azure.find(pool_id, {"api-version": VERSION})
            if pool is None:
                raise group_size.ResizeRefusedError("404: there is none")
            azure.put(pool_id, VERSION, {"properties": {**pool["properties"], "minCount": inputs["size"]}})
        except AzureRefusedError as error:
            busy = error.status in _BUSY
            raise group_size.ResizeRefusedError(f"{error.status}: {error.message}", busy=busy) from None

    def read(self, inputs: Inputs, outputs: Outputs, progress: HandlerProgress) -> ReadResult:
        """Drift is a different minCount, not missing nodes."""
        pool_id = inputs["agentPool"]
        found = _azure(pool_id).find(pool_id, {"api-version": VERSION})
        if found is None:
            raise ResourceNotFound
        return ReadResult({**inputs, "size": found["properties"].get("minCount") or 0}, outputs)


def _azure(pool_id: str) -> AzureClient:
    """Client of the pool's subscription, whose ID is in the pool's: `/subscriptions/ID/…`."""
    return AzureClient.of_user(pool_id.split("/")[2])
