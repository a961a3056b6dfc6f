"""Interface of the catalogue: data on machines, fabrics, regions, quotas, preemption notices, Kubernetes
versions and dated prices, read from files without asking a cloud.

A module is imported when the first of its names is asked for: a job needs accelerators and fabrics alone, and
the rest takes 60 ms.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog.cloud_schema import (
        NOTICE_MARGIN,
        EfaLayout,
        Machine,
        Nics,
        PurchaseKind,
        Quota,
        Region,
        SpotNotice,
    )
    from catalog.cloud_store import (
        UNIONS,
        MachineFilters,
        clouds,
        find_machine,
        find_quota,
        kubernetes_minors,
        machine,
        machines,
        notices,
        region,
        regions,
        usable_notice_seconds,
    )
    from catalog.cost import (
        Estimate,
        MachinePurchase,
        PricedPurchase,
        Purchase,
        ServicePurchase,
        StoragePurchase,
        TargetPurchases,
        estimate,
        highest_price_of,
    )
    from catalog.errors import DataError, UnknownNameError
    from catalog.pricing import (
        HOURS_PER_MONTH,
        STALE_AFTER_DAYS,
        Dated,
        MissingPrice,
        Price,
        StoragePrice,
        TrafficPrice,
        egress_price,
        price,
        service_price,
        storage_price,
    )
    from catalog.residency import (
        ENDPOINT_VARIABLE,
        JURISDICTION,
        REGION,
        REGION_IN_HOST,
        REGION_VARIABLES,
        Jurisdiction,
        as_expressions,
        is_country_within,
        jurisdiction,
        jurisdiction_of,
        matches,
        permitted,
    )
    from catalog.schema import (
        Accelerator,
        Architecture,
        Claim,
        Cloud,
        Fabric,
        FigureSource,
        HostPath,
        NcclTopology,
        Rack,
        Sidecar,
    )
    from catalog.store import (
        accelerator,
        accelerator_resource,
        accelerator_resources,
        accelerators,
        carries_accelerators,
        fabric,
        fabrics,
        find_rack,
        has_fabric_of_one_zone,
    )

__all__ = [
    "ENDPOINT_VARIABLE",
    "HOURS_PER_MONTH",
    "JURISDICTION",
    "NOTICE_MARGIN",
    "REGION",
    "REGION_IN_HOST",
    "REGION_VARIABLES",
    "STALE_AFTER_DAYS",
    "UNIONS",
    "Accelerator",
    "Architecture",
    "Claim",
    "Cloud",
    "DataError",
    "Dated",
    "EfaLayout",
    "Estimate",
    "Fabric",
    "FigureSource",
    "HostPath",
    "Jurisdiction",
    "Machine",
    "MachineFilters",
    "MachinePurchase",
    "MissingPrice",
    "NcclTopology",
    "Nics",
    "Price",
    "PricedPurchase",
    "Purchase",
    "PurchaseKind",
    "Quota",
    "Rack",
    "Region",
    "ServicePurchase",
    "Sidecar",
    "SpotNotice",
    "StoragePrice",
    "StoragePurchase",
    "TargetPurchases",
    "TrafficPrice",
    "UnknownNameError",
    "accelerator",
    "accelerator_resource",
    "accelerator_resources",
    "accelerators",
    "as_expressions",
    "carries_accelerators",
    "clouds",
    "egress_price",
    "estimate",
    "fabric",
    "fabrics",
    "find_machine",
    "find_quota",
    "find_rack",
    "has_fabric_of_one_zone",
    "highest_price_of",
    "is_country_within",
    "jurisdiction",
    "jurisdiction_of",
    "kubernetes_minors",
    "machine",
    "machines",
    "matches",
    "notices",
    "permitted",
    "price",
    "region",
    "regions",
    "service_price",
    "storage_price",
    "usable_notice_seconds",
]
_MODULES = ("errors", "schema", "store", "cloud_schema", "cloud_store", "residency", "pricing", "cost")
"""Modules in the order in which a name is looked for: each imports only those before it."""


def __getattr__(name: str) -> object:
    if name in __all__:
        for module in _MODULES:
            if (found := vars(import_module(f"{__name__}.{module}")).get(name)) is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
