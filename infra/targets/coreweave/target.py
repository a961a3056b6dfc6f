"""Declares the CoreWeave target (CKS): its spec, checks, cost, cluster class, its features, and why it lacks
the others.
"""

from pathlib import Path

from catalog.purchases import cost_of
from infra.targets.coreweave.stackfile.target import CoreweaveSpec
from infra.targets.coreweave.stackfile.validators import CHECKS
from infra.targets.data_types import data_types
from infra.targets.features import Feature
from infra.targets.pool_types import PoolType
from infra.targets.target import Target

TARGET = Target(
    kind="coreweave",
    spec=CoreweaveSpec,
    validators=CHECKS,
    cost=cost_of("coreweave"),
    features=frozenset(
        {
            Feature.SPOT_CAPACITY,
            Feature.RESERVED_CAPACITY,
            Feature.QUEUED_PROVISIONING,
            Feature.NVLINK_DOMAINS,
        }
    ),
    reasons={
        Feature.CAPACITY_BLOCKS: "only EC2 has capacity blocks: reserve with CoreWeave, and write reserved",
        Feature.RESERVED_PLACEMENT: "CoreWeave places nodes itself, and labels their location",
        Feature.ALTERNATIVE_MACHINES: "a node pool has one instance type: make a pool of each",
        Feature.CHOSEN_PLACEMENT: "CoreWeave places nodes itself, and labels their location",
        Feature.AUTOSCALED_POOLS: (
            "a node takes half an hour to boot: write one number of `nodes`; beside the queues write"
            " `provisioning: node-by-node`"
        ),
        Feature.TPU_SLICES: "CoreWeave has no TPUs: choose a machine with GPUs",
    },
    pool_types={
        # CoreWeave: Node Pool reference; class and type of its instances cannot be changed.
        "kubernetes:compute.coreweave.com/v1alpha1:NodePool": PoolType(
            labels="spec.nodeLabels",
            sizes=["spec.maxNodes", "spec.targetNodes"],
            replaced="its jobs are evicted; old nodes are deleted before new ones start",
        )
    },
    data=data_types("infra.targets.coreweave.stackfile"),
    advice=Path(__file__).parent / "stackfile/advice.yaml",
    packages="coreweave",
    plugins=("coreweave",),
    cluster="infra.targets.coreweave.cluster:CoreweaveCluster",
)
