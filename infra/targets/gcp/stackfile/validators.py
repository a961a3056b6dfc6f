"""Validators find the settings of a Google Cloud stack file that the API would refuse: region and network,
pools (capacity, placement, TPU slices), filesystem sizes, groups, and an existing cluster.
"""

from collections.abc import Iterator

import catalog
from infra.common.subnets import NODE_POD_ADDRESSES, SYSTEM_NODE_POD_ADDRESSES, gke_ranges
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.queue import TeamSpec
from infra.stackfile.source import KeyPath
from infra.stackfile.storage import StorageSpec
from infra.targets import cloud_validators
from infra.targets.cloud_validators import (
    EXISTING_CLUSTER,
    access_is_the_clusters_owners,
    an_existing_filesystem_is_in_an_existing_network,
    claims_fit,
    cluster_has_a_supported_version,
    cluster_is_in_an_existing_network,
    declared_machines_fit_the_cloud,
    fabrics_over_zones,
    filesystem_zone_is_the_stacks,
    groups_are_spelled,
    machine_is_sold,
    nearest_steps,
    next_step,
    pools_agree_with_their_machines,
    queues_see_the_nodes_that_they_count,
    reservation_fits_the_capacity,
    tags_are_within_limit,
    with_machines,
    zones_of_pools_are_the_stacks,
)
from infra.targets.gcp.stackfile.groups import num_hosts
from infra.targets.gcp.stackfile.target import FilestoreSpec, GcpSpec, GkeFeature, ManagedLustreSpec

Pools = tuple[NodePoolSpec, ...]

VPC_PREFIXES = range(10, 19)
"""Allowed prefix lengths of a VPC: a wider one takes all of 10.0.0.0/8; in a narrower one a fabric's
subnets hold no nodes."""
LUSTRE_STEP_GIB = {125: 72000, 250: 36000, 500: 18000, 1000: 9000}
"""Throughput in MB/s per TiB → smallest size and step in GiB (Managed Lustre: performance tiers, read
2026-11-21)."""
LUSTRE_WIDE_STEP_GIB = {125: 72000, 250: 288000, 500: 144000, 1000: 72000}
"""Step of sizes above 170 small steps; the tier of 125 MB/s has one step only."""
LUSTRE_LARGEST_GIB = {125: 12_240_000, 250: 40_032_000, 500: 20_016_000, 1000: 10_008_000}
FILESTORE_RANGES_GIB = {
    "zonal": (range(1024, 9985, 256), range(10240, 102401, 2560)),
    "regional": (range(100, 1024), range(1024, 9985, 256), range(10240, 102401, 2560)),
}
"""Size ranges by tier (Filestore: service tiers, read 2026-11-21); below 1 TiB, regional takes any size
from 100 GiB."""
FLEX_START_COMPACT = ("a3-ultragpu-", "a4-")
"""Machine types that flex-start supports with compact placement (Cluster Toolkit, gke-node-pool)."""


def the_region_is_known(target: GcpSpec) -> Iterator[Finding]:
    """A multi-region such as EU holds data, but no cluster."""
    known = _regions()
    if target.region not in known:
        yield unknown(("target", "region"), target.region, known, "a region of Google Cloud")


def zones_are_of_the_region(target: GcpSpec) -> Iterator[Finding]:
    """A zone is its region, a dash and a letter."""
    if target.region not in _regions():
        return
    for index, zone in enumerate(target.zones):
        path: KeyPath = ("target", "zones", index)
        region, _, letter = zone.rpartition("-")
        if region != target.region or len(letter) != 1 or not letter.isalpha():
            allowed = f"zones of {target.region}: {target.region}-a, {target.region}-b, …"
            yield path, repr(zone), allowed, "name a zone of the stack's region"
        if zone in target.zones[:index]:
            yield path, repr(zone), "each zone once", "remove one of the two"


def the_network_holds_the_nodes(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """Each node takes a range for its pods, and an address in each subnet of its fabric."""
    cidr, path = target.network.cidr, ("target", "network", "cidr")
    if cidr.prefixlen not in VPC_PREFIXES:
        allowed = f"a prefix of /{VPC_PREFIXES[0]} to /{VPC_PREFIXES[-1]}"
        yield path, str(cidr), allowed, "use a prefix such as /16"
        return
    ranges = gke_ranges(cidr)
    addresses = sum(pool.num_nodes * _pod_addresses(pool) for pool in pools)
    if not target.network.existing and addresses > ranges.pods.num_addresses:
        got = f"{cidr}, of which {ranges.pods} is for pods"
        allowed = f"{addresses} addresses or more for pods ({NODE_POD_ADDRESSES} per node of a job pool)"
        yield path, got, allowed, "use a wider network, such as a /14"
    on_fabric = sum(pool.num_nodes for pool in pools if pool.fabric not in ("tcp", "ici"))
    room = ranges.fabric[0].num_addresses - 4
    if on_fabric > room:
        got = f"{cidr}, of which each subnet of a fabric is a /{ranges.fabric[0].prefixlen}"
        allowed = f"room for {on_fabric} nodes in each (Google Cloud reserves 4 addresses)"
        yield path, got, allowed, "use a wider network, such as a /14"


def the_key_is_of_this_region(target: GcpSpec) -> Iterator[Finding]:
    """A key must be in the stack's region; a global key is refused."""
    if target.kms_key is None:
        return
    location = target.kms_key.split("/")[3]
    if location != target.region:
        fix = "name a key of the stack's region, or omit it: the stack creates keys"
        yield ("target", "kms_key"), f"a key in {location}", f"a key in {target.region}", fix


def machines_exist(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """Every pool names its machine type, and every machine is in the catalogue."""
    what = "a machine type of Google Cloud"
    yield from cloud_validators.machines_exist(target, pools, what=what, listed_by="docs/catalog.md")


def machines_are_sold(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """Google Cloud lists on-demand prices even of machine types that it does not sell on demand."""
    for index, pool, machine in with_machines("gcp", pools):
        yield from machine_is_sold(index, pool, machine, target.region)


def a_fabric_is_in_one_zone(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """GPU networks and TPU slices end at the zone: ranks in two would use TCP, or fail to connect."""
    for index, pool, zones in fabrics_over_zones(target, pools):
        allowed = f"one zone: {pool.fabric} ({pool.machine}) does not cross zones"
        fix = "give the pool one zone; for more zones, more pools, each a flavor of the queue"
        yield ("pools", index, "zones"), zones, allowed, fix


def networks_of_a_fabric_are_in_one_zone(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """A RoCE VPC belongs to one zone, and `rdma-0` means one VPC in the whole cluster."""
    first: tuple[int, str] | None = None
    for index, pool in enumerate(pools):
        zones = pool.zones or target.zones
        if pool.fabric != "roce" or len(zones) > 1:
            continue
        if first is not None and zones[0] != first[1]:
            allowed = f"{first[1]}, the zone of pools[{first[0]}]: the cluster's RoCE network is in one zone"
            fix = "move the pool, or write `fabric: roce-dra` on one: DRANET has a network per zone"
            yield ("pools", index, "zones"), zones[0], allowed, fix
        first = first or (index, zones[0])


def pools_fill_their_racks(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """A pool has one rack or less, or full racks: each rack is a node pool, and these are of equal size."""
    for index, pool, machine in with_machines("gcp", pools):
        rack = catalog.find_rack(machine.accelerator or "")
        if rack and pool.num_nodes > rack.machines and pool.num_nodes % rack.machines:
            allowed = f"{rack.machines} at most, or a multiple: a rack has {rack.machines} {machine.name}"
            fix = f"write {nearest_steps(pool.num_nodes, rack.machines)}"
            yield ("pools", index, "nodes"), str(pool.num_nodes), allowed, fix


def nodes_divide_over_zones(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """GKE counts the nodes of a pool per zone."""
    for index, pool in enumerate(pools):
        zones = len(pool.zones or target.zones)
        if pool.num_nodes % zones:
            upper = next_step(pool.num_nodes, zones)
            got = f"{pool.num_nodes} in {zones} zones"
            fix = f"write {upper}, or name fewer zones"
            yield ("pools", index, "nodes"), got, f"a multiple of {zones}: as many in each zone", fix


def reservations_fit_the_capacity(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """Reserved pools have a reservation, and no other pools do."""
    for index, pool in enumerate(pools):
        yield from reservation_fits_the_capacity(
            index, pool, what="reservation", add="add `reservation: {id: NAME}`"
        )
        if pool.reservation is None:
            continue
        path: KeyPath = ("pools", index, "reservation")
        name, *block = pool.reservation.id.split("/")
        if not name or (block and (block[0] != "reservationBlocks" or len(block) != 2)):
            allowed = "NAME or NAME/reservationBlocks/BLOCK"
            fix = "see `gcloud compute reservations list`"
            yield (*path, "id"), repr(pool.reservation.id), allowed, fix
        zones = pool.zones or target.zones
        if len(zones) > 1 and pool.fabric == "tcp":
            allowed = "one zone: a reservation is in one"
            yield ("pools", index, "zones"), ", ".join(zones), allowed, "name the reservation's zone"


def queued_pools_are_on_demand(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """Flex-start and queued provisioning draw on a separate capacity."""
    for index, pool in enumerate(pools):
        if pool.max_run_hours and not pool.provisioning:
            fix = "remove it, or add `provisioning: all-at-once`"
            yield (
                ("pools", index, "max_run"),
                "on nodes that are not provisioned on demand",
                "with `provisioning` only",
                fix,
            )
        if not pool.provisioning:
            continue
        path: KeyPath = ("pools", index, "provisioning")
        got = f"{pool.provisioning} on a {pool.label} pool"
        if pool.label != "on-demand":
            drawn = "a reservation" if pool.capacity == "reserved" else pool.label
            allowed = f"capacity: on-demand; {drawn} cannot be provisioned for a job"
            yield (path, got, allowed, f"remove `provisioning:`, or add a separate pool beside {pool.name!r}")
        if pool.accelerator is None or pool.fabric == "ici":
            allowed = "nodes with GPUs: this release provisions no others for a job"
            yield (
                path,
                pool.machine or "no machine",
                allowed,
                "remove `provisioning:`, which makes the nodes permanent",
            )


def queued_provisioning_is_by_itself(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """Google Cloud places queued nodes itself, and never upgrades them."""
    for index, pool in enumerate(pools):
        if pool.provisioning == "all-at-once" and pool.placement == "compact":
            fix = "remove `placement:`, or write `provisioning: node-by-node`"
            path = ("pools", index, "placement")
            yield path, "compact with all-at-once provisioning", "one of the two", fix
        if pool.provisioning == "all-at-once" and target.release_channel != "none":
            allowed = "none: queued nodes are never upgraded, which a channel requires"
            fix = "write `release_channel: none`, and upgrade the cluster yourself"
            yield ("target", "release_channel"), target.release_channel, allowed, fix
            return


def compact_placement_is_possible(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """Compact placement needs one zone, GPUs, no reservation, and with flex-start certain machine types."""
    for index, pool in enumerate(pools):
        if pool.placement is None:
            continue
        path: KeyPath = ("pools", index, "placement")
        zones = pool.zones or target.zones
        if len(zones) > 1:
            allowed = "one zone with compact placement"
            yield ("pools", index, "zones"), ", ".join(zones), allowed, "name one zone"
        if pool.capacity == "reserved":
            allowed = "nothing: a reservation determines the placement"
            yield path, "compact on reserved capacity", allowed, "remove `placement:`"
        if pool.accelerator is None or pool.fabric == "ici":
            allowed = "pools with GPUs; slices of TPUs are placed by their topology"
            yield path, f"compact on {pool.machine}", allowed, "remove `placement:`"
        machine = pool.machine or ""
        if pool.provisioning == "node-by-node" and not machine.startswith(FLEX_START_COMPACT):
            allowed = "A3 Ultra and A4: flex-start has compact placement for no other machine"
            yield path, f"compact with node-by-node on {machine}", allowed, "remove one of the two"


def slices_have_a_shape(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """A TPU slice is sold in shapes; a pool holds whole slices."""
    for index, pool, machine in with_machines("gcp", pools):
        path: KeyPath = ("pools", index, "topology")
        if not machine.topologies:
            if pool.topology is not None:
                yield path, repr(pool.topology), f"nothing: {machine.name} has no TPUs", "remove the key"
            continue
        if pool.topology not in machine.topologies:
            yield unknown(path, pool.topology or "nothing", machine.topologies, f"a slice of {machine.name}")
            continue
        hosts = num_hosts(pool.topology, machine)
        if pool.num_nodes % hosts:
            got = f"{pool.num_nodes} nodes for slices of {pool.topology}"
            upper = next_step(pool.num_nodes, hosts)
            allowed = f"a multiple of {hosts}: the nodes of one slice"
            yield ("pools", index, "nodes"), got, allowed, f"write {upper}, or choose another topology"


def lustre_has_a_size_that_is_sold(target: GcpSpec) -> Iterator[Finding]:
    """Sizes come in steps that follow the throughput. An existing filesystem has its own size."""
    spec = target.filesystem
    if not isinstance(spec, ManagedLustreSpec) or spec.existing:
        return
    step, largest = LUSTRE_STEP_GIB[spec.throughput], LUSTRE_LARGEST_GIB[spec.throughput]
    if spec.capacity_gib > 170 * step:
        step = LUSTRE_WIDE_STEP_GIB[spec.throughput]
    path: KeyPath = ("target", "filesystem", "capacity")
    at = f"at {spec.throughput} MB/s per TiB"
    if spec.capacity_gib > largest:
        yield path, f"{spec.capacity_gib}Gi", f"{largest}Gi at most {at}", f"write {largest}Gi"
    elif spec.capacity_gib % step:
        yield (
            path,
            f"{spec.capacity_gib}Gi",
            f"steps of {step}Gi {at}",
            f"write {nearest_steps(spec.capacity_gib, step, 'Gi')}",
        )


def filestore_has_a_size_that_is_sold(target: GcpSpec) -> Iterator[Finding]:
    """Sizes come in ranges with steps; the regional tier is in no zone."""
    spec = target.filesystem
    if not isinstance(spec, FilestoreSpec) or spec.existing:
        return
    ranges = FILESTORE_RANGES_GIB[spec.tier]
    if not any(spec.capacity_gib in sizes for sizes in ranges):
        allowed = "; ".join(f"{sizes[0]}Gi to {sizes[-1]}Gi in steps of {sizes.step}Gi" for sizes in ranges)
        above = [size for sizes in ranges for size in sizes if size >= spec.capacity_gib]
        fix = f"write {above[0]}Gi" if above else f"write {ranges[-1][-1]}Gi, or use Managed Lustre"
        yield ("target", "filesystem", "capacity"), f"{spec.capacity_gib}Gi", allowed, fix
    if spec.tier == "regional" and spec.zone is not None:
        path = ("target", "filesystem", "zone")
        yield path, repr(spec.zone), "nothing with tier: regional", "remove it, or write `tier: zonal`"


def the_filesystem_is_in_a_zone_of_the_stack(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """Managed Lustre and zonal Filestore are in one zone."""
    yield from filesystem_zone_is_the_stacks(target, target.filesystem.zone)


def claims_fit_the_filesystem(
    target: GcpSpec, storage: StorageSpec, teams: tuple[TeamSpec, ...]
) -> Iterator[Finding]:
    """Both filesystems have the size that was bought."""
    yield from claims_fit(target.filesystem.capacity_gib, storage, teams)


def bucket_name_is_not_reserved(target: GcpSpec, storage: StorageSpec) -> Iterator[Finding]:
    """Cloud Storage reserves names that contain 'google'."""
    bucket = storage.object_store.bucket
    if bucket.startswith("goog") or "google" in bucket:
        allowed = "a name that neither begins with 'goog' nor contains 'google'"
        yield ("storage", "object_store", "bucket"), repr(bucket), allowed, "choose another name"


def groups_are_in_workspace(target: GcpSpec, teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """GKE identifies a group by its address, and sees only groups that are members of `security_group`."""
    allowed = "the address of a Google Group: research@example.com"
    fix = "write the address alone, without `group:`"
    yield from groups_are_spelled(teams, r"[^@\s:]+@[^@\s]+", allowed, fix)
    if target.access.security_group is None and any(team.groups for team in teams):
        fix = "name it, and add the teams' groups to it (Google Groups for RBAC)"
        allowed = "gke-security-groups@DOMAIN where teams have groups"
        yield ("target", "access", "security_group"), "nothing", allowed, fix


def an_existing_cluster_is_in_an_existing_network(target: GcpSpec) -> Iterator[Finding]:
    """The cluster's nodes are in its VPC, and a VPC that the stack makes is empty."""
    fix = "name the cluster's VPC, its subnet and its ranges in `network.existing`"
    yield from cluster_is_in_an_existing_network(target, fix)


def an_existing_cluster_can_take_the_stack(target: GcpSpec, pools: Pools) -> Iterator[Finding]:
    """The stack's objects need this version and these features; some are set only at creation."""
    cluster = target.existing_cluster
    if cluster is None:
        return
    yield from cluster_has_a_supported_version(
        target, "gcloud container clusters upgrade {name} --master --cluster-version {minor}"
    )
    needed = _needed_features(target, pools)
    if lacking := [feature for feature in needed if feature not in cluster.features]:
        late = {"dataplane-v2", "multi-networking"} & {*lacking}
        fix = (
            f"{' and '.join(sorted(late))}: only a new cluster can have it, so let the stack create one"
            if late
            else "see `gcloud container clusters update --help`, then name them here"
        )
        yield (*EXISTING_CLUSTER, "features"), f"without {', '.join(lacking)}", ", ".join(needed), fix


def _needed_features(target: GcpSpec, pools: Pools) -> list[GkeFeature]:
    """Return the features that the stack requires of a cluster: pod identities, bucket volumes, …"""
    nics = any(catalog.fabric(pool.fabric).interfaces for pool in pools)
    claims = any(catalog.fabric(pool.fabric).claim for pool in pools)
    found: list[GkeFeature] = ["workload-identity", "gcs-fuse"]
    if target.filesystem.kind == "lustre":
        found.append("lustre")
    if nics or claims:
        found.append("dataplane-v2")
    return [*found, "multi-networking"] if nics else found


def what_an_existing_cluster_has_is_its_owners(target: GcpSpec) -> Iterator[Finding]:
    """The stack grants its teams access, and does not change the cluster itself."""
    if target.existing_cluster is None:
        return
    access = target.access
    yield from access_is_the_clusters_owners({"viewers": access.viewers, "break_glass": access.break_glass})


def declared_accelerators_have_a_gcp_name(target: GcpSpec) -> Iterator[Finding]:
    """GKE requires the accelerator's name beside the machine type."""
    for name, machine in target.machines.items():
        if machine.accelerator is not None and machine.accelerator_type is None:
            fix = "add it, as `gcloud compute accelerator-types list` shows it"
            path: KeyPath = ("target", "machines", name, "accelerator_type")
            yield path, "nothing", "GKE's name of the accelerator", fix


def labels_are_not_too_many(target: GcpSpec) -> Iterator[Finding]:
    """Google Cloud allows 64 per resource (Resource Manager, requirements for labels)."""
    yield from tags_are_within_limit("labels", target.labels, most=64, of="Google Cloud")


CHECKS = Checks(
    __name__,
    declared_machines_fit_the_cloud,
    pools_agree_with_their_machines,
    zones_of_pools_are_the_stacks,
    queues_see_the_nodes_that_they_count,
    an_existing_filesystem_is_in_an_existing_network,
)


def _regions() -> list[str]:
    """Regions that hold clusters. Multi-regions, which hold data only, have names in capitals."""
    return [region.name for region in catalog.regions("gcp") if region.name.islower()]


def _pod_addresses(pool: NodePoolSpec) -> int:
    return SYSTEM_NODE_POD_ADDRESSES if pool.is_system else NODE_POD_ADDRESSES
