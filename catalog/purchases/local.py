"""Purchases of a local stack: none, since the cluster runs on this host."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.cost import Purchase, Stack, TargetPurchases


def _purchases(_stack: Stack) -> Iterator[Purchase]:
    return iter(())


COST = TargetPurchases(_purchases, nothing_bought="runs on this host")
