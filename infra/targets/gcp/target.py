"""Declares the Google Cloud target (GKE): its spec, checks, cost, cluster and account classes, its features,
and why it lacks the others.
"""

from pathlib import Path

from catalog.purchases import gcp
from infra.targets.data_types import data_types
from infra.targets.features import Feature
from infra.targets.gcp.stackfile.target import GcpSpec
from infra.targets.gcp.stackfile.validators import CHECKS
from infra.targets.pool_types import PoolType, Resized
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
        Feature.RESERVED_PLACEMENT: "only EC2 places instances by the group of their reservation",
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
    pool_types={
        # GKE: nodePools.update rolls for a node configuration, by surge; labels and taints change in place.
        "gcp:container/nodePool:NodePool": PoolType(
            labels="nodeConfig.labels",
            # A node pool that begins empty is sized by a separate resource.
            sizes=["nodeCount", "autoscaling.totalMaxNodeCount"],
            per_zone="nodeLocations",
            rolling=["nodeConfig", "version"],
            in_place=[f"nodeConfig.{each}" for each in ("labels", "taints", "resourceLabels", "tags")],
            replaced="its jobs are evicted; old nodes are deleted before new ones start",
        ),
        "trainyard:gcp:NodePoolSize": Resized(),
    },
    data=data_types("infra.targets.gcp.stackfile"),
    advice=Path(__file__).parent / "stackfile/advice.yaml",
    packages="gcp",
    plugins=("gcp",),
    cluster="infra.targets.gcp.cluster:GcpCluster",
    account="infra.targets.gcp.account:GcpAccount",
)
