"""Declares the Azure target (AKS): its spec, checks, cost, cluster and account classes, its features, and why
it lacks the others.
"""

from pathlib import Path

from catalog.purchases import azure
from infra.targets.azure.stackfile.target import AzureSpec
from infra.targets.azure.stackfile.validators import CHECKS
from infra.targets.data_types import data_types
from infra.targets.features import Feature
from infra.targets.pool_types import PoolType
from infra.targets.target import Target

TARGET = Target(
    kind="azure",
    spec=AzureSpec,
    validators=CHECKS,
    cost=azure.COST,
    features=frozenset({Feature.SPOT_CAPACITY, Feature.RESERVED_CAPACITY, Feature.QUEUED_PROVISIONING}),
    reasons={
        Feature.CAPACITY_BLOCKS: (
            "only EC2 has capacity blocks: name an Azure capacity reservation group, with `kind: targeted`"
        ),
        Feature.RESERVED_PLACEMENT: "only EC2 places instances by the group of their reservation",
        Feature.ALTERNATIVE_MACHINES: (
            "an agent pool has one VM size: make a pool of each, and all of them flavors of the queue"
        ),
        Feature.CHOSEN_PLACEMENT: "a scale set with InfiniBand is one domain, which Azure places itself",
        Feature.AUTOSCALED_POOLS: (
            "write `provisioning: all-at-once` (beside the queues node-by-node), not a range of `nodes`"
        ),
        Feature.TPU_SLICES: "Azure has no TPUs: choose a machine with GPUs",
        Feature.NVLINK_DOMAINS: (
            "this release supports no racks on Azure: ND GB200 as agent pools is untested. Use"
            " Standard_ND96isr_H200_v5, a cloud that sells GB200 (`trainyard catalog`), or"
            " an existing cluster that has them, as kind: onprem"
        ),
    },
    pool_types={
        # AKS: labels, taints and the count change in place; a version upgrade replaces node by node.
        "azure-native:containerservice:AgentPool": PoolType(
            labels="nodeLabels",
            sizes=["maxCount", "count"],
            rolling=["orchestratorVersion", "osSKU"],
            replaced="its jobs are evicted; old nodes are deleted before new ones start",
        )
    },
    data=data_types("infra.targets.azure.stackfile"),
    advice=Path(__file__).parent / "stackfile/advice.yaml",
    packages="azure",
    plugins=("azure-native",),
    programs=("kubelogin",),
    cluster="infra.targets.azure.cluster:AzureCluster",
    account="infra.targets.azure.account:AzureAccount",
)
