"""Declares the AWS target (EKS): its spec, checks, cost, cluster and account classes, its features, and why
it lacks the others.
"""

from __future__ import annotations

from catalog.purchases import aws
from infra.targets.aws.stackfile.advice import ADVICE
from infra.targets.aws.stackfile.pool_types import POOL_TYPES
from infra.targets.aws.stackfile.target import AwsSpec
from infra.targets.aws.stackfile.validators import CHECKS
from infra.targets.data_types import data_types
from infra.targets.features import Feature
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
    pool_types=POOL_TYPES,
    data=data_types("infra.targets.aws.stackfile"),
    advice=ADVICE,
    packages="aws",
    plugins=("aws",),
    cluster="infra.targets.aws.cluster:AwsCluster",
    account="infra.targets.aws.account:AwsAccount",
)
