"""Declares the Google Cloud target (GKE): its spec, checks, cost, cluster and account classes, its features,
and why it lacks the others.
"""

from __future__ import annotations

from catalog.purchases import gcp
from infra.targets.data_types import data_types
from infra.targets.features import Feature
from infra.targets.gcp.stackfile.advice import ADVICE
from infra.targets.gcp.stackfile.pool_types import POOL_TYPES
from infra.targets.gcp.stackfile.target import GcpSpec
from infra.targets.gcp.stackfile.validators import CHECKS
from infra.targets.target import Target

TARGET = Target(
    kind="gcp",
    spec=GcpSpec,
    validators=CHECKS,
    cost=gcp.COST,
    features=frozenset(
        {
            Feature.SPOT_CAPACITY,
            Feature.RESERVED_CAPACITY,
            Feature.CHOSEN_PLACEMENT,
            Feature.QUEUED_PROVISIONING,
            Feature.TPU_SLICES,
            Feature.NVLINK_DOMAINS,
        }
    ),
    reasons={
        Feature.ALTERNATIVE_MACHINES: (
            "a GKE node pool has one machine type: make a pool of each, and all of them flavors of the queue"
        ),
        Feature.AUTOSCALED_POOLS: (
            "Google Cloud queues requests for scarce machines: write `provisioning: all-at-once`, not a range"
            " of `nodes`"
        ),
        Feature.CAPACITY_BLOCKS: (
            "only EC2 has capacity blocks: name the reservation, or a future one, with `kind: targeted`"
        ),
    },
    pool_types=POOL_TYPES,
    data=data_types("infra.targets.gcp.stackfile"),
    advice=ADVICE,
    packages="gcp",
    plugins=("gcp",),
    cluster="infra.targets.gcp.cluster:GcpCluster",
    account="infra.targets.gcp.account:GcpAccount",
)
