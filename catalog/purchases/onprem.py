"""Purchases of an on-premises stack: none, since the machines exist already."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.cost import Purchase, Stack, TargetPurchases


def _purchases(_stack: Stack) -> Iterator[Purchase]:
    return iter(())


COST = TargetPurchases(_purchases, nothing_bought="runs on machines of your own")
