"""Declares the CoreWeave target (CKS): its spec, checks, cost, cluster class, its features, and why it lacks
the others.
"""

from __future__ import annotations

from catalog.purchases import coreweave
from infra.targets.coreweave.stackfile.advice import ADVICE
from infra.targets.coreweave.stackfile.pool_types import POOL_TYPES
from infra.targets.coreweave.stackfile.target import CoreweaveSpec
from infra.targets.coreweave.stackfile.validators import CHECKS
from infra.targets.data_types import data_types
from infra.targets.features import Feature
from infra.targets.target import Target

TARGET = Target(
    kind="coreweave",
    spec=CoreweaveSpec,
    validators=CHECKS,
    cost=coreweave.COST,
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
        Feature.ALTERNATIVE_MACHINES: "a node pool has one instance type: make a pool of each",
        Feature.CHOSEN_PLACEMENT: "CoreWeave places nodes itself, and labels their location",
        Feature.AUTOSCALED_POOLS: (
            "a node takes half an hour to boot: write one number of `nodes`; beside the queues write"
            " `provisioning: node-by-node`"
        ),
        Feature.TPU_SLICES: "CoreWeave has no TPUs: choose a machine with GPUs",
    },
    pool_types=POOL_TYPES,
    data=data_types("infra.targets.coreweave.stackfile"),
    advice=ADVICE,
    packages="coreweave",
    plugins=("coreweave",),
    cluster="infra.targets.coreweave.cluster:CoreweaveCluster",
)
