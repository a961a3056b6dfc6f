"""Declares the on-premises target (an existing cluster): its spec, checks, cost, cluster class, its features,
and why it lacks the others.
"""

from __future__ import annotations

from catalog.purchases import onprem
from infra.targets.features import Feature
from infra.targets.onprem.stackfile.pool_types import POOL_TYPES
from infra.targets.onprem.stackfile.target import OnpremSpec
from infra.targets.onprem.stackfile.validators import CHECKS
from infra.targets.target import Target

_OWN = "the nodes are yours, and nothing is bought"

TARGET = Target(
    kind="onprem",
    spec=OnpremSpec,
    validators=CHECKS,
    cost=onprem.COST,
    features=frozenset({Feature.NVLINK_DOMAINS}),
    reasons={
        Feature.SPOT_CAPACITY: f"{_OWN}: write on-demand; priorities decide who waits",
        Feature.RESERVED_CAPACITY: f"{_OWN}: write on-demand",
        Feature.CAPACITY_BLOCKS: f"{_OWN}: write on-demand",
        Feature.ALTERNATIVE_MACHINES: f"{_OWN}: make a pool of each kind of machine",
        Feature.CHOSEN_PLACEMENT: "nodes have fixed locations: list these in provider.leaves",
        Feature.QUEUED_PROVISIONING: f"{_OWN}: the number of nodes is fixed",
        Feature.AUTOSCALED_POOLS: f"{_OWN}: write one number of `nodes`",
        Feature.TPU_SLICES: "TPUs exist on Google Cloud only: choose an accelerator of the catalogue",
    },
    pool_types=POOL_TYPES,
    cluster="infra.targets.onprem.cluster:OnpremCluster",
)
