"""Purchases of a CoreWeave stack: machines, priced by zone; the catalogue has no prices of its storage."""

from __future__ import annotations

from catalog.cost import TargetPurchases
from catalog.purchases.pools import machines_of_pools

COST = TargetPurchases(machines_of_pools)
