"""Declares the AWS target (EKS): its spec, checks, cost, cluster and account classes, its features, and why
it lacks the others.
"""

from pathlib import Path

from catalog.purchases import aws
from infra.targets.aws.stackfile.target import AwsSpec
from infra.targets.aws.stackfile.validators import CHECKS
from infra.targets.data_types import data_types
from infra.targets.features import Feature
from infra.targets.pool_types import PoolType, Resized
from infra.targets.target import Target

TARGET = Target(
    kind="aws",
    spec=AwsSpec,
    validators=CHECKS,
    cost=aws.COST,
    features=frozenset(
        {
            Feature.SPOT_CAPACITY,
            Feature.RESERVED_CAPACITY,
            Feature.CAPACITY_BLOCKS,
            Feature.RESERVED_PLACEMENT,
            Feature.ALTERNATIVE_MACHINES,
            Feature.AUTOSCALED_POOLS,
        }
    ),
    reasons={
        Feature.CHOSEN_PLACEMENT: (
            "on-demand pools with EFA have compact placement already: remove `placement:`"
        ),
        Feature.QUEUED_PROVISIONING: (
            "EC2 has a machine at once or not at all: write `nodes: 0..N` for nodes that come with the jobs,"
            " or reserve a capacity block for a time to come"
            " (`capacity: reserved`, `reservation: {id: cr-…, kind: block}`)"
        ),
        Feature.TPU_SLICES: "TPUs exist on Google Cloud only: use kind: gcp, or a machine with GPUs",
        Feature.NVLINK_DOMAINS: (
            "this release supports no racks on AWS: UltraServers as node groups are untested. Use"
            " p6-b200.48xlarge or p6-b300.48xlarge, a cloud that sells GB200 (`trainyard catalog`), or"
            " bring a cluster that has them as kind: onprem"
        ),
    },
    pool_types={
        # EKS: UpdateNodegroupVersion rolls, UpdateNodegroupConfig does not; a deleted group drains its nodes.
        "aws:eks/nodeGroup:NodeGroup": PoolType(
            labels="labels",
            sizes=["scalingConfig.maxSize", "scalingConfig.desiredSize"],
            rolling=["launchTemplate", "version", "releaseVersion"],
            replaced="new nodes are created, then old ones drained, 5 min each at most",
        ),
        "trainyard:aws:NodeGroupSize": Resized(),
    },
    data=data_types("infra.targets.aws.stackfile"),
    advice=Path(__file__).parent / "stackfile/advice.yaml",
    packages="aws",
    plugins=("aws",),
    cluster="infra.targets.aws.cluster:AwsCluster",
    account="infra.targets.aws.account:AwsAccount",
)
