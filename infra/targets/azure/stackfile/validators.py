"""Checks of Azure stack files (network, pools, InfiniBand, storage, keys) for what Azure would refuse."""

import re
from collections.abc import Iterator
from ipaddress import IPv4Network

import catalog
from infra.common.names import agent_pool
from infra.common.subnets import aks_ranges
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.queue import TeamSpec
from infra.stackfile.source import KeyPath
from infra.stackfile.storage import StorageSpec
from infra.targets import cloud_validators
from infra.targets.azure.stackfile.target import GUID, AzureLustreSpec, AzureSpec, BlobNfsSpec, NetAppSpec
from infra.targets.cloud_validators import (
    amd_has_its_images,
    claims_fit,
    declared_machines_fit_the_cloud,
    fabrics_over_zones,
    filesystem_zone_is_the_stacks,
    groups_are_spelled,
    nearest_steps,
    networks_are_apart,
    pools_agree_with_their_machines,
    queues_see_the_nodes_that_they_count,
    reservation_fits_the_capacity,
    tags_are_within_limit,
    the_api_server_is_not_public,
    the_object_store_has_no_size,
    zones_of_pools_are_the_stacks,
)

Pools = tuple[NodePoolSpec, ...]

VNET_PREFIXES = range(10, 22)
"""Allowed prefix lengths of a VNet: a wider one is all of 10.0.0.0/8; a narrower one leaves the API server
less than a /28."""
RESERVED = tuple(map(IPv4Network, ("169.254.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24")))
"""Ranges that AKS reserves (AKS: plan IP addressing, read 2026-11-22)."""
RESERVED_ADDRESSES = 5
"""Number of addresses that Azure reserves in each subnet."""
NODE_POD_ADDRESSES = 256
"""Pod addresses of a node: Azure CNI Overlay assigns a /24."""
MAX_POOL_NODES = 1000
"""Maximum number of nodes in an agent pool (AKS: quotas and limits, read 2026-11-22)."""
LUSTRE_STEP_TIB = {40: 48, 125: 16, 250: 8, 500: 4}
"""Throughput in MB/s per TiB → smallest size and step in TiB (Azure Managed Lustre: create a file system,
2026-11-22)."""
LUSTRE_LARGEST_TIB = {40: 12_800, 125: 4096, 250: 2048, 500: 1024}
LUSTRE_SUBNETS = ((16, 27), (40, 26), (92, 25), (196, 24), (400, 23))
"""Size in TiB → longest prefix of the subnet (Azure Managed Lustre: prerequisites, read 2026-11-22)."""
AZURE_DROPS_BLOCKS_DAYS = 7
"""Days after which Azure discards uncommitted blocks (Blob Storage: Put Block, remarks)."""
NETAPP_LARGEST_TIB = 100
"""Size of the largest regular volume in TiB (Azure NetApp Files: resource limits, read 2026-11-22)."""
_RESERVATION = re.compile(
    r"/subscriptions/[0-9a-f-]{36}/resourceGroups/[^/]+/providers/Microsoft\.Compute"
    r"/capacityReservationGroups/[^/]+"
)


def the_region_is_known(target: AzureSpec) -> Iterator[Finding]:
    """Azure's API takes names without spaces, in small letters."""
    known = [region.name for region in catalog.regions("azure")]
    if target.region not in known:
        yield unknown(("target", "region"), target.region, known, "a region of Azure")


def zones_are_named_once(target: AzureSpec) -> Iterator[Finding]:
    """A zone that is listed twice is still one zone."""
    for index, zone in enumerate(target.zones):
        if zone in target.zones[:index]:
            yield ("target", "zones", index), repr(zone), "each zone once", "remove one of the two"


def networks_leave_what_aks_uses(target: AzureSpec) -> Iterator[Finding]:
    """AKS uses some ranges itself, in each cluster."""
    for name in ("cidr", "pods", "services"):
        cidr = getattr(target.network, name)
        for taken in RESERVED:
            if cidr.overlaps(taken):
                got = f"{cidr}, which overlaps {taken}"
                fix = "move the range, to 10.0.0.0/8 for instance"
                yield ("target", "network", name), got, "ranges that AKS does not use itself", fix


def the_network_holds_the_nodes(target: AzureSpec, pools: Pools) -> Iterator[Finding]:
    """Each node takes an address of the VNet, and a range for its pods that cannot be widened later."""
    network, nodes = target.network, sum(pool.num_nodes for pool in pools)
    path: KeyPath = ("target", "network", "cidr")
    if network.cidr.prefixlen not in VNET_PREFIXES:
        allowed = f"a prefix of /{VNET_PREFIXES[0]} to /{VNET_PREFIXES[-1]}"
        yield path, str(network.cidr), allowed, "use a prefix such as /16"
        return
    room = aks_ranges(network.cidr).nodes
    if not network.existing and nodes + RESERVED_ADDRESSES > room.num_addresses:
        got = f"{network.cidr}, of which {room} is for nodes"
        allowed = f"{nodes + RESERVED_ADDRESSES} addresses or more for nodes"
        yield path, got, allowed, "use a wider network, such as a /16"
    if network.pods.num_addresses < nodes * NODE_POD_ADDRESSES:
        allowed = f"{nodes * NODE_POD_ADDRESSES} addresses or more ({NODE_POD_ADDRESSES} per node)"
        fix = "use a wider range, such as a /12"
        yield ("target", "network", "pods"), str(network.pods), allowed, fix


def routes_are_of_a_network_that_exists(target: AzureSpec) -> Iterator[Finding]:
    """A VNet that the stack makes has no firewall to send packets to."""
    if target.network.outbound == "routes" and target.network.existing is None:
        fix = (
            "name the subnets in `existing`, whose route table has a default route, or write `outbound: nat`"
        )
        yield ("target", "network", "outbound"), "'routes'", "nat, if the stack creates the VNet", fix


def keys_are_of_the_vault(target: AzureSpec) -> Iterator[Finding]:
    """Rights are given on the vault that is named, so its keys are the ones that can be used."""
    if target.keys is None:
        return
    vault = target.keys.vault.rpartition("/")[2].lower()
    for name in ("cluster", "data"):
        url: str = getattr(target.keys, name)
        if url.partition("//")[2].partition(".")[0] != vault:
            fix = "name a key of that vault, or the vault of the key"
            yield ("target", "keys", name), url, f"a key of https://{vault}.vault.azure.net", fix


def existing_storage_has_its_keys(target: AzureSpec) -> Iterator[Finding]:
    """Existing storage is encrypted with existing keys; new ones would be deleted with the stack."""
    if target.storage_group is not None and target.keys is None:
        fix = "add `keys:` with the vault and the keys of the former stack"
        yield ("target", "keys"), "nothing, with existing storage", "its vault and keys", fix


def machines_exist(target: AzureSpec, pools: Pools) -> Iterator[Finding]:
    """Every pool names its machine type, and every machine is in the catalogue."""
    listed_by = "`trainyard catalog machines --cloud azure`"
    yield from cloud_validators.machines_exist(target, pools, what="a VM size of Azure", listed_by=listed_by)


def agent_pools_have_unique_names(target: AzureSpec, pools: Pools) -> Iterator[Finding]:
    """AKS takes twelve small letters and digits: two pools can come out alike."""
    seen: dict[str, str] = {}
    for index, pool in enumerate(pools):
        name = agent_pool(pool.name)
        if seen.setdefault(name, pool.name) != pool.name:
            got = f"{pool.name!r}, in AKS {name}, as {seen[name]!r}"
            allowed = "names that differ in their letters and digits"
            yield ("pools", index, "name"), got, allowed, "rename one of the two"


def pools_are_no_larger_than_a_scale_set(target: AzureSpec, pools: Pools) -> Iterator[Finding]:
    """An agent pool is one scale set."""
    for index, pool in enumerate(pools):
        if pool.num_nodes > MAX_POOL_NODES:
            allowed = f"{MAX_POOL_NODES} at most: an agent pool is one scale set"
            fix = "add a pool, with a separate queue: InfiniBand ends at the scale set"
            yield ("pools", index, "nodes"), str(pool.num_nodes), allowed, fix


def infiniband_is_in_one_zone(target: AzureSpec, pools: Pools) -> Iterator[Finding]:
    """A scale set over zones has VMs behind several fabrics: their ranks would use TCP."""
    for index, pool, zones in fabrics_over_zones(target, pools):
        allowed = f"one zone: {pool.fabric} ({pool.machine}) does not cross zones"
        fix = "give the pool one zone; for more zones, more pools, each with a queue"
        yield ("pools", index, "zones"), zones, allowed, fix


def reservations_fit_the_capacity(target: AzureSpec, pools: Pools) -> Iterator[Finding]:
    """Reserved pools have a reservation, and no other pools do."""
    for index, pool in enumerate(pools):
        yield from reservation_fits_the_capacity(
            index,
            pool,
            what="capacity reservation group",
            add="add `reservation: {id: /subscriptions/…/capacityReservationGroups/NAME}`",
        )
        if pool.reservation is None:
            continue
        path: KeyPath = ("pools", index, "reservation")
        if not _RESERVATION.fullmatch(pool.reservation.id):
            allowed = (
                "/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Compute"
                "/capacityReservationGroups/NAME"
            )
            fix = "write the ID that `az capacity reservation group show` gives"
            yield (*path, "id"), repr(pool.reservation.id), allowed, fix


def queued_pools_are_autoscaled(target: AzureSpec, pools: Pools) -> Iterator[Finding]:
    """AKS's autoscaler resizes pools that can be empty, and whose capacity is not reserved."""
    for index, pool in enumerate(pools):
        if pool.max_run_hours:
            fix = "remove it: AKS deletes idle nodes, at any age"
            yield ("pools", index, "max_run"), f"{pool.max_run_hours}h", "nothing (kind: azure)", fix
        path: KeyPath = ("pools", index, "provisioning")
        got = f"{pool.provisioning} on a {pool.label} pool"
        if pool.provisioning and pool.label in ("system", "reserved"):
            allowed = (
                "on-demand or spot: operators need permanent nodes, and an idle reservation costs the same"
            )
            yield path, got, allowed, "remove `provisioning:`"
        elif pool.provisioning == "all-at-once" and pool.accelerator is None:
            allowed = "node-by-node for nodes without accelerators, since no queue counts them"
            yield path, f"all-at-once on {pool.machine}", allowed, "write `provisioning: node-by-node`"


def lustre_has_a_size_that_is_sold(target: AzureSpec) -> Iterator[Finding]:
    """Sizes come in steps that follow the throughput."""
    spec = target.filesystem
    if not isinstance(spec, AzureLustreSpec):
        return
    step, largest = LUSTRE_STEP_TIB[spec.throughput], LUSTRE_LARGEST_TIB[spec.throughput]
    path: KeyPath = ("target", "filesystem", "capacity")
    at = f"at {spec.throughput} MB/s per TiB"
    if spec.capacity_tib > largest:
        yield path, f"{spec.capacity_tib}Ti", f"{largest}Ti at most {at}", f"write {largest}Ti"
    elif spec.capacity_tib % step:
        near = nearest_steps(spec.capacity_tib, step, "Ti")
        yield path, f"{spec.capacity_tib}Ti", f"steps of {step}Ti {at}", f"write {near}"


def lustre_has_room_in_its_subnet(target: AzureSpec) -> Iterator[Finding]:
    """Lustre's servers take addresses of a subnet that cannot be changed later."""
    both, network = (target.filesystem, target.second_filesystem), target.network
    size = sum(each.capacity_tib for each in both if isinstance(each, AzureLustreSpec))
    if not size or network.existing or network.cidr.prefixlen not in VNET_PREFIXES:
        return
    subnet = aks_ranges(network.cidr).filesystem
    needed = next((prefix for largest, prefix in LUSTRE_SUBNETS if size <= largest), 22)
    if subnet.prefixlen > needed:
        got = f"{network.cidr}, of which {subnet} is for the filesystem"
        allowed = f"a /{needed} or wider for {size}Ti"
        yield ("target", "network", "cidr"), got, allowed, f"use a /{needed - 2} or wider"


def netapp_has_a_size_that_is_sold(target: AzureSpec) -> Iterator[Finding]:
    """A regular volume has a maximum size."""
    spec = target.filesystem
    if isinstance(spec, NetAppSpec) and spec.capacity_tib > NETAPP_LARGEST_TIB:
        allowed = f"{NETAPP_LARGEST_TIB}Ti at most: one regular volume"
        fix = f"write {NETAPP_LARGEST_TIB}Ti, or use Managed Lustre"
        yield ("target", "filesystem", "capacity"), f"{spec.capacity_tib}Ti", allowed, fix


def the_filesystem_is_in_a_zone_of_the_stack(target: AzureSpec) -> Iterator[Finding]:
    """Managed Lustre is in one zone."""
    spec = target.filesystem
    zone = spec.zone if isinstance(spec, AzureLustreSpec) else None
    yield from filesystem_zone_is_the_stacks(target, zone)


def claims_fit_the_filesystem(
    target: AzureSpec, storage: StorageSpec, teams: tuple[TeamSpec, ...]
) -> Iterator[Finding]:
    """Two of the filesystems have the size that was bought; Blob storage grows."""
    if not isinstance(target.filesystem, BlobNfsSpec):
        yield from claims_fit(target.filesystem.capacity_tib * 1024, storage, teams)


def storage_accounts_are_two(target: AzureSpec) -> Iterator[Finding]:
    """An account with NFS supports no blob versions, which checkpoints in the object store need."""
    spec = target.filesystem
    if isinstance(spec, BlobNfsSpec) and spec.account == target.storage_account:
        path = ("target", "filesystem", "account")
        allowed = "another account than the object store's"
        yield (
            path,
            repr(spec.account),
            allowed,
            "choose a different name: an account with NFS has no versions",
        )


def the_container_has_a_name_that_azure_takes(target: AzureSpec, storage: StorageSpec) -> Iterator[Finding]:
    """A container's name has no two dashes in a row."""
    bucket = storage.object_store.bucket
    if "--" in bucket:
        path = ("storage", "object_store", "bucket")
        yield path, repr(bucket), "a name without '--' (Blob containers)", "remove one of the two dashes"


def blocks_go_when_azure_lets_them_go(storage: StorageSpec) -> Iterator[Finding]:
    """Blocks that were never made a blob are Azure's to remove."""
    lifecycle = storage.object_store.lifecycle
    if lifecycle is not None and lifecycle.unfinished_days != AZURE_DROPS_BLOCKS_DAYS:
        path: KeyPath = ("storage", "object_store", "lifecycle", "unfinished_days")
        allowed = f"{AZURE_DROPS_BLOCKS_DAYS}: Azure always deletes uncommitted blocks after that time"
        yield path, str(lifecycle.unfinished_days), allowed, "leave it out"


def datasets_have_a_folder(target: AzureSpec, datasets: tuple[DatasetSpec, ...]) -> Iterator[Finding]:
    """NFS 3.0 of Blob storage mounts containers, and all datasets are folders of one volume."""
    if datasets and target.filesystem.kind == "blob-nfs":
        fix = "choose `filesystem: {kind: lustre, …}` or netapp, or let jobs read the store itself"
        yield ("datasets",), "on blob-nfs", "with a filesystem whose folders can be mounted", fix


def sources_of_datasets_are_reached(
    target: AzureSpec, datasets: tuple[DatasetSpec, ...]
) -> Iterator[Finding]:
    """The copying Job's identity is assigned a role on the container, which needs the account's ID."""
    for index, dataset in enumerate(datasets):
        if dataset.cloud == "azure" and dataset.uses_identity and dataset.account == dataset.account_name:
            allowed = "the account's ID: the stack grants the Job's identity access to the container"
            fix = "write what `az storage account show --query id` gives, or a `secret`, or `public: true`"
            yield ("datasets", index, "account"), repr(dataset.account), allowed, fix


def tags_are_such_as_azure_takes(target: AzureSpec) -> Iterator[Finding]:
    """Azure Resource Manager, use tags: 50 of a resource; names of 128 (storage accounts), values of 256."""
    yield from tags_are_within_limit("tags", target.tags, most=50, of="Azure")
    for key, value in target.tags.items():
        path: KeyPath = ("target", "tags", key)
        if not 1 <= len(key) <= 128 or set(key) & set("<>%&\\?/"):
            yield path, repr(key), r"1 to 128 characters, none of < > % & \ ? /", "use other characters"
        if len(value) > 256:
            yield path, f"{len(value)} characters", "at most 256 characters", "shorten it"


def groups_are_entras(teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """AKS knows groups by their object IDs; a name would grant nothing."""
    allowed = "the object ID of a group of Entra: 00000000-0000-0000-0000-000000000000"
    fix = "write the output of `az ad group show --group NAME --query id`"
    yield from groups_are_spelled(teams, GUID, allowed, fix)


CHECKS = Checks(
    __name__,
    declared_machines_fit_the_cloud,
    networks_are_apart,
    pools_agree_with_their_machines,
    the_object_store_has_no_size,
    the_api_server_is_not_public,
    zones_of_pools_are_the_stacks,
    amd_has_its_images,
    queues_see_the_nodes_that_they_count,
)
