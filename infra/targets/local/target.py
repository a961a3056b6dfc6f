"""Declares the local target (an embedded, kind or existing cluster): its spec, checks, cost, cluster class,
its features, and why it lacks the others.
"""

from catalog.purchases import cost_of
from infra.targets.features import Feature
from infra.targets.local.stackfile.pool_types import POOL_TYPES
from infra.targets.local.stackfile.target import LocalSpec
from infra.targets.local.stackfile.validators import CHECKS
from infra.targets.target import Target

TARGET = Target(
    kind="local",
    spec=LocalSpec,
    validators=CHECKS,
    cost=cost_of("local"),
    features=frozenset({Feature.SPOT_CAPACITY}),
    reasons={
        **dict.fromkeys(Feature, "remove the key, or choose a cloud"),
        Feature.RESERVED_CAPACITY: "nodes of this host cannot be reserved: use on-demand or spot",
        Feature.AUTOSCALED_POOLS: "idle nodes of this host cost nothing: write one number of `nodes`",
        Feature.NVLINK_DOMAINS: "simulated GPUs have no NVLink: leave `fabric` out",
    },
    pool_types=POOL_TYPES,
    artifacts=("env/training",),
    cluster="infra.targets.local.cluster.cluster:LocalCluster",
)
