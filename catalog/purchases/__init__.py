"""Finds what a stack buys: one module per target lists the purchases, as a pure function of the stack's plain
data.
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from catalog.cost import TargetPurchases
from catalog.purchases.pools import machines_of_pools

_NOTHING_BOUGHT = {"local": "runs on this host", "onprem": "runs on machines of your own"}


@cache
def cost_of(target: str) -> TargetPurchases:
    """Return what stacks of a target buy; of one that has no module here, the machines of their pools."""
    if reason := _NOTHING_BOUGHT.get(target):
        return TargetPurchases(lambda _stack: iter(()), nothing_bought=reason)
    if target not in {module.name for module in iter_modules(__path__)} - {"pools"}:
        return TargetPurchases(machines_of_pools)
    found: TargetPurchases = import_module(f"{__name__}.{target}").COST
    return found
