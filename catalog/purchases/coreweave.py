"""CoreWeave: machines, priced by zone. Of its storage the catalogue has no prices."""

from __future__ import annotations

from catalog.cost import TargetCost
from catalog.purchases.pools import machines_of_pools

COST = TargetCost(machines_of_pools)
