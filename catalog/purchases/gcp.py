"""Purchases of a Google Cloud stack: machines, Managed Lustre or Filestore, Cloud Storage, GKE, Cloud NAT."""

from collections.abc import Iterator

from catalog.cost import Purchase, ServicePurchase, Stack, StoragePurchase, TargetPurchases
from catalog.purchases import pools

PRICED_NAT_VMS = 32
"""Number of VMs behind a gateway that Cloud NAT charges by the hour; more cost only traffic (Cloud NAT
pricing)."""


def _purchases(stack: Stack) -> Iterator[Purchase]:
    yield from pools.machines_of_pools(stack)
    region = pools.price_region(stack)
    for key, filesystem in pools.new_filesystems(stack):
        is_lustre = filesystem.get("kind") == "lustre"
        speed = f"managed-lustre-{filesystem.get('throughput')}"
        kind = speed if is_lustre else f"filestore-{filesystem.get('tier')}"
        path, gib = f"{key}.capacity", pools.gibibytes(filesystem.get("capacity"))
        yield StoragePurchase(name="filesystem", cloud="gcp", region=region, path=path, kind=kind, gib=gib)
    yield StoragePurchase(name="object store", cloud="gcp", region=region, kind="gcs-standard", gib=None)
    if pools.makes_cluster(stack):
        yield ServicePurchase(
            name="control plane", cloud="gcp", region=region, path="target", kind="gke-cluster"
        )
    if pools.new_network(stack).get("nat"):
        nodes = sum(pools.num_nodes(pool)[1] for _, pool in pools.pools(stack))
        number, path = min(nodes, PRICED_NAT_VMS), "target.network.nat"
        yield ServicePurchase(
            name="NAT", cloud="gcp", region=region, path=path, kind="cloud-nat-vm", number=number
        )


COST = TargetPurchases(_purchases)
