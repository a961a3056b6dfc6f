"""Purchases of an Azure stack: machines, Managed Lustre, NetApp Files or Blob over NFS, and Blob."""

from collections.abc import Iterator

from catalog.cost import Purchase, Stack, StoragePurchase, TargetPurchases
from catalog.purchases import pools


def _purchases(stack: Stack) -> Iterator[Purchase]:
    yield from pools.machines_of_pools(stack)
    region = pools.price_region(stack)
    for key, filesystem in pools.new_filesystems(stack):
        kinds = {
            "lustre": f"azure-lustre-{filesystem.get('throughput')}",
            "netapp": f"netapp-{filesystem.get('service_level')}",
        }
        kind = kinds.get(str(filesystem.get("kind")), "blob-nfs-hot")
        gib = pools.gibibytes(filesystem.get("capacity"))
        path = f"{key}.capacity"
        yield StoragePurchase(name="filesystem", cloud="azure", region=region, path=path, kind=kind, gib=gib)
    kind = "blob-hot-zrs" if pools.target(stack).get("zones") else "blob-hot-lrs"
    yield StoragePurchase(name="object store", cloud="azure", region=region, kind=kind, gib=None)


COST = TargetPurchases(_purchases)
