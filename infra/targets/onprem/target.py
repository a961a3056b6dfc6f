"""Declares the on-premises target (an existing cluster): its spec, checks, cost, cluster class, its features,
and why it lacks the others.
"""

from catalog.purchases import cost_of
from infra.targets.features import Feature
from infra.targets.onprem.stackfile.target import OnpremSpec
from infra.targets.onprem.stackfile.validators import CHECKS
from infra.targets.pool_types import PoolType
from infra.targets.target import Target

_OWN = "the nodes are yours, and nothing is bought"

TARGET = Target(
    kind="onprem",
    spec=OnpremSpec,
    validators=CHECKS,
    cost=cost_of("onprem"),
    features=frozenset({Feature.NVLINK_DOMAINS}),
    reasons={
        Feature.SPOT_CAPACITY: f"{_OWN}: write on-demand; priorities decide who waits",
        Feature.RESERVED_CAPACITY: f"{_OWN}: write on-demand",
        Feature.CAPACITY_BLOCKS: f"{_OWN}: write on-demand",
        Feature.RESERVED_PLACEMENT: f"{_OWN}: write on-demand",
        Feature.ALTERNATIVE_MACHINES: f"{_OWN}: make a pool of each kind of machine",
        Feature.CHOSEN_PLACEMENT: "nodes have fixed locations: list these in target.leaves",
        Feature.QUEUED_PROVISIONING: f"{_OWN}: the number of nodes is fixed",
        Feature.AUTOSCALED_POOLS: f"{_OWN}: write one number of `nodes`",
        Feature.TPU_SLICES: "TPUs exist on Google Cloud only: choose an accelerator of the catalogue",
    },
    pool_types={
        # Labels and taints are set on existing nodes, and removed from them.
        "kubernetes:core/v1:NodePatch": PoolType(
            labels="metadata.labels", sizes=[], replaced="labels and taints are removed and set again"
        )
    },
    cluster="infra.targets.onprem.cluster:OnpremCluster",
)
