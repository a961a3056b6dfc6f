"""Checks of AWS stack files (network, pools, EFA, Lustre, existing resources) for what AWS would refuse."""

from collections.abc import Iterator

import catalog
from catalog import Machine
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.queue import QueueSpec, TeamSpec
from infra.stackfile.source import KeyPath
from infra.stackfile.storage import StorageSpec
from infra.targets.aws.stackfile.partitions import UNSERVED, partition_of
from infra.targets.aws.stackfile.registries import UNKNOWN
from infra.targets.aws.stackfile.target import PRINCIPAL, AwsSpec, LustreSpec
from infra.targets.cloud_validators import (
    EXISTING_CLUSTER,
    access_is_the_clusters_owners,
    an_existing_filesystem_is_in_an_existing_network,
    claims_fit,
    cluster_has_a_supported_version,
    cluster_is_in_an_existing_network,
    declared_machines_fit_the_cloud,
    fabrics_over_zones,
    groups_are_spelled,
    machine_is_sold,
    nearest_steps,
    pools_agree_with_their_machines,
    reservation_fits_the_capacity,
    tags_are_within_limit,
    the_api_server_is_not_public,
    unknown_machine,
    zones_of_pools_are_the_stacks,
)

Pools = tuple[NodePoolSpec, ...]

LUSTRE_STEP_GIB = 2400
"""Step of SSD storage of PERSISTENT_2: 1200 GiB, or multiples of 2400 (FSx API, CreateFileSystem)."""
LUSTRE_EFA_STEP_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
"""Throughput in MB/s per TiB → step of the size with EFA (FSx for Lustre user guide, EFA-enabled file
systems)."""
VPC_PREFIXES = range(16, 21)
"""Allowed prefix lengths of a VPC: /16 is AWS's widest; an eighth of less than a /20 is too small for a
zone's pods."""


def the_region_is_known(target: AwsSpec) -> Iterator[Finding]:
    """The catalogue has every region in which it knows machines."""
    known = [region.name for region in catalog.regions("aws")]
    if not _is_known(target.region):
        yield unknown(("target", "region"), target.region, known, "a region of AWS")


def the_partition_is_served(target: AwsSpec) -> Iterator[Finding]:
    """China and the European Sovereign Cloud use other names in policies and endpoints."""
    if partition_of(target.region) in UNSERVED:
        allowed = "a region of AWS, or of GovCloud (us-gov-…)"
        fix = "create the EKS cluster there yourself, and use it with `kind: onprem` (docs/other-clouds.md)"
        yield ("target", "region"), target.region, allowed, fix


def principals_are_of_the_partition(target: AwsSpec, teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """EKS refuses an access entry for a principal of another partition, after the cluster is created."""
    partition, access = partition_of(target.region), target.access
    named: dict[KeyPath, tuple[str, ...]] = {
        ("target", "access", role): getattr(access, role) for role in ("admins", "viewers", "break_glass")
    }
    for index, team in enumerate(teams):
        named |= {("teams", index, role): getattr(team, role) for role in ("members", "viewers")}
    for path, principals in named.items():
        for position, principal in enumerate(principals):
            other = principal.split(":")[1] if principal.startswith("arn:") else partition
            if other != partition:
                allowed = f"arn:{partition}:…, since {target.region} is in that partition"
                yield (*path, position), principal, allowed, "name a principal of the stack's account"


def zones_are_of_the_region(target: AwsSpec) -> Iterator[Finding]:
    """A zone is its region and a letter."""
    if not _is_known(target.region):
        return
    for index, zone in enumerate(target.zones):
        path: KeyPath = ("target", "zones", index)
        if zone[:-1] != target.region or not zone[-1:].isalpha():
            allowed = f"zones of {target.region}: {target.region}a, {target.region}b, …"
            yield path, repr(zone), allowed, "name a zone of the stack's region"
        if zone in target.zones[:index]:
            yield path, repr(zone), "each zone once", "remove one of the two"


def the_network_has_a_usable_size(target: AwsSpec) -> Iterator[Finding]:
    """Each zone gets an eighth of the network."""
    cidr = target.network.cidr
    if cidr.prefixlen not in VPC_PREFIXES:
        allowed = f"a prefix of /{VPC_PREFIXES[0]} to /{VPC_PREFIXES[-1]}: each zone gets an eighth"
        yield ("target", "network", "cidr"), str(cidr), allowed, "use a prefix such as /16"


def without_nat_images_come_from_a_mirror(target: AwsSpec) -> Iterator[Finding]:
    """Operators and plugins are on public registries, which nodes without a way out never reach."""
    network = target.network
    if network.nat == "none" and network.existing is None and target.mirror is None:
        allowed = "with `mirror:`, a registry that nodes reach by the endpoints (ECR), with all images"
        fix = "add `mirror: {registry: …, charts: oci://…}` (docs/aws.md), or write `nat: one`"
        yield ("target", "network", "nat"), "none", allowed, fix


def images_of_eks_are_in_the_region(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """EFA's plugin comes from EKS's own registry, whose account is another one in some regions."""
    on_efa = any(pool.fabric.startswith("efa") for pool in pools)
    if target.region in UNKNOWN and on_efa and target.mirror is None:
        allowed = "regions whose registry of EKS images Trainyard knows"
        fix = "add `mirror:` with the images of EKS, or choose another region"
        yield ("target", "region"), target.region, allowed, fix


def an_existing_vpc_has_a_subnet_per_zone(target: AwsSpec) -> Iterator[Finding]:
    """Pools, mount targets and the control plane are put into the subnet of their zone."""
    existing = target.network.existing
    if existing and set(existing.subnets) != set(target.zones):
        got = ", ".join(existing.subnets) or "none"
        allowed = f"one private subnet for each of {', '.join(target.zones)}"
        fix = "name the subnets of these zones, or change the stack's zones"
        yield ("target", "network", "existing", "subnets"), got, allowed, fix


def the_boundary_is_of_this_account(target: AwsSpec) -> Iterator[Finding]:
    """A boundary is a policy of AWS or of the account whose roles it bounds (IAM guide)."""
    if target.permissions_boundary is None:
        return
    account = target.permissions_boundary.split(":")[4]
    if account not in (target.account, "aws"):
        fix = "name a policy of the stack's account, or one of AWS"
        path = ("target", "permissions_boundary")
        yield path, f"a policy of {account}", f"a policy of {target.account}, or AWS's", fix


def the_key_is_of_this_account_and_region(target: AwsSpec) -> Iterator[Finding]:
    """Disks and filesystems take a key of the same region only; a replica would hold data elsewhere."""
    if target.kms_key is None:
        return
    region, account = target.kms_key.split(":")[3:5]
    if region != target.region:
        fix = "name a key of the stack's region, or omit it: the stack creates keys"
        yield ("target", "kms_key"), f"a key in {region}", f"a key in {target.region}", fix
    if account != target.account:
        fix = "name a key of the stack's account: its policy must let EC2's scaling groups use it"
        yield ("target", "kms_key"), f"a key of {account}", f"a key of {target.account}", fix


def machines_exist(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """Every pool names its machine type, and every machine is in the catalogue."""
    known = [*target.machines, *(machine.name for machine in catalog.machines(cloud="aws"))]
    for index, pool in enumerate(pools):
        if pool.machine is None:
            fix = "add `machine:`; docs/catalog.md lists them"
            yield ("pools", index), "no machine", "a machine type of EC2 on every pool", fix
        named: list[tuple[KeyPath, str | None]] = [(("pools", index, "machine"), pool.machine)]
        others = enumerate(pool.alternatives or ())
        named += [(("pools", index, "alternatives", position), name) for position, name in others]
        for path, name in named:
            if name is not None and name not in known:
                yield unknown_machine(path, name, known, "a machine type of EC2")


def machines_are_offered(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """Machines must be offered in the region, for purchase in the way that the pool is bought."""
    for index, pool in enumerate(pools):
        for machine in _machines(pool):
            yield from machine_is_sold(index, pool, machine, target.region)


def alternatives_are_alike(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """A job gets nodes of one pool, so these have the same accelerators, fabric and architecture."""
    for index, pool in enumerate(pools):
        path: KeyPath = ("pools", index, "alternatives")
        if pool.alternatives and not pool.is_spot:
            fix = "remove them, or make it a spot pool"
            yield path, f"on a {pool.label} pool", "alternatives on spot pools only", fix
        first, *others = (_machine(pool, name) for name in (pool.machine, *(pool.alternatives or ())))
        for position, other in enumerate(others):
            if first and other and _kind(other) != _kind(first):
                allowed = f"{_describe(first)}, like {first.name}"
                fix = "give the other machine a separate pool, and a flavor in the queue"
                yield (*path, position), f"{other.name}: {_describe(other)}", allowed, fix


def a_fabric_is_in_one_zone(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """EFA does not cross zones: ranks in two of them would talk over TCP, or not at all."""
    for index, pool, zones in fabrics_over_zones(target, pools):
        allowed = f"one zone, since {pool.fabric} (EFA) does not cross zones"
        fix = "give the pool one zone; for more zones, more pools, each a flavor of the queue"
        yield ("pools", index, "zones"), zones, allowed, fix


def reservations_fit_the_capacity(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """Reserved pools have a reservation, and no other pools do."""
    for index, pool in enumerate(pools):
        called = "a capacity block" if _is_block(pool) else "a reservation"
        add = "add `reservation: {id: cr-…}` (kind: block for a capacity block)"
        yield from reservation_fits_the_capacity(index, pool, what="reservation", add=add, called=called)
        if pool.reservation is None:
            continue
        path: KeyPath = ("pools", index, "reservation")
        if not pool.reservation.id.startswith("cr-"):
            fix = "see `aws ec2 describe-capacity-reservations`"
            yield (*path, "id"), repr(pool.reservation.id), "cr- and 17 hexadecimal digits", fix
        if _is_block(pool) and pool.reservation.placement_group:
            fix = "remove the key: a launch into a group and a block fails"
            yield (*path, "placement_group"), "a group for a block", "none: a block is placed already", fix
        if len(pool.zones or target.zones) > 1:
            got = ", ".join(pool.zones or target.zones)
            fix = "name the reservation's zone"
            yield ("pools", index, "zones"), got, "one zone: a reservation is in one", fix


def tags_are_not_too_many(target: AwsSpec) -> Iterator[Finding]:
    """AWS takes 50 for each resource (Best practices for tagging AWS resources)."""
    yield from tags_are_within_limit("tags", target.tags, most=50, of="AWS")


def blocks_have_start_and_end(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """A block's group is empty before it begins and from shortly before its end; a plan asks EC2 nothing."""
    for index, pool in enumerate(pools):
        reservation = pool.reservation
        if reservation is None:
            continue
        path: KeyPath = ("pools", index, "reservation")
        times = [each for each in (reservation.starts, reservation.ends) if each]
        ask = f"aws ec2 describe-capacity-reservations --capacity-reservation-ids {reservation.id}"
        if _is_block(pool) and len(times) < 2:
            fix = f"add both: `{ask} --query 'CapacityReservations[0].[StartDate,EndDate]'`"
            yield path, "a block without its time", "`starts` and `ends` of the block, in UTC", fix
        elif _is_block(pool) and reservation.ends_at <= reservation.begins_at:
            got = f"{reservation.ends}, after {reservation.starts}"
            yield (*path, "ends"), got, "an end after the beginning", f"write what `{ask}` shows"
        elif not _is_block(pool) and times:
            fix = "remove `starts` and `ends`, or write `kind: block`"
            yield path, "a time for a reservation without an end", "times of capacity blocks only", fix


def autoscaled_spot_pools_have_a_node_per_market(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """Such pools have a group per machine type and zone, and an empty group buys nothing."""
    for index, pool in enumerate(pools):
        types, zones = 1 + len(pool.alternatives or ()), len(pool.zones or target.zones)
        if pool.is_spot and pool.is_autoscaled and pool.num_nodes < types * zones:
            got = f"{pool.num_nodes} in {types * zones} markets (machine types × zones: {types} × {zones})"
            fix = "raise `nodes`, or name fewer zones or alternatives"
            yield ("pools", index, "nodes"), got, f"{types * zones} or more: one per market", fix


def autoscaled_pools_have_a_node_per_zone(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """Each zone has a separate group, which EC2 never evens out by taking a node with a job."""
    for index, pool in enumerate(pools):
        zones = len(pool.zones or target.zones)
        if pool.is_autoscaled and not pool.is_spot and pool.num_nodes < zones:
            fix = "raise `nodes`, or name fewer zones"
            path: KeyPath = ("pools", index, "nodes")
            yield path, f"{pool.num_nodes} in {zones} zones", f"{zones} or more: one per zone", fix


def only_hourly_capacity_is_autoscaled(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """The autoscaler runs on the system pool; reserved capacity is charged whether its nodes run or not."""
    for index, pool in enumerate(pools):
        path: KeyPath = ("pools", index, "nodes")
        if not pool.is_autoscaled:
            continue
        allowed = "on-demand pools, and spot pools without accelerators"
        if pool.label in ("system", "reserved"):
            fix = "write one number: the size of this pool is fixed"
            yield path, f"a range on a {pool.label} pool", allowed, fix
        if pool.is_spot and pool.accelerator:
            fix = "write one number here, so that the on-demand pool behind it is autoscaled"
            yield path, "a range on a spot pool with accelerators, for which a job would wait", allowed, fix


def autoscaled_pools_have_no_resource_claims(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """Devices to claim are published by nodes: for an empty group the scheduler knows of none."""
    for index, pool in enumerate(pools):
        if pool.is_autoscaled and catalog.fabric(pool.fabric).claim:
            allowed = f"a fixed number of nodes: the autoscaler cannot predict devices ({pool.fabric})"
            fix = "remove `fabric` (the device plugin), or write one number"
            yield ("pools", index, "nodes"), str(pool.nodes), allowed, fix


def an_autoscaled_pool_is_a_queues_last_flavor(
    target: AwsSpec, pools: Pools, queues: tuple[QueueSpec, ...]
) -> Iterator[Finding]:
    """Kueue continues asking for the nodes of the flavor that it chose, and tries no other."""
    breathing = {pool.name for pool in pools if pool.is_autoscaled}
    for index, queue in enumerate(queues):
        for position, flavor in enumerate(queue.flavors[:-1]):
            if flavor.pool in breathing:
                path = ("queues", index, "flavors", position, "pool")
                got = f"{flavor.pool!r}, an autoscaled pool, before other flavors"
                fix = "move it to the end, or write one number of `nodes`: a waiting job tries no other"
                yield path, got, "an autoscaled pool as the queue's last flavor", fix


def lustre_has_a_size_that_fsx_takes(target: AwsSpec) -> Iterator[Finding]:
    """FSx sells steps; with EFA they follow the throughput. An existing filesystem keeps its size."""
    spec = target.filesystem
    if not isinstance(spec, LustreSpec) or spec.existing:
        return
    step = LUSTRE_EFA_STEP_GIB[spec.throughput] if spec.efa else LUSTRE_STEP_GIB
    smallest = not spec.efa and spec.capacity_gib == LUSTRE_STEP_GIB // 2
    if spec.capacity_gib % step and not smallest:
        kind = f"with EFA at {spec.throughput} MB/s per TiB" if spec.efa else "(or 1200Gi)"
        path = ("target", "filesystem", "capacity")
        yield (
            path,
            f"{spec.capacity_gib}Gi",
            f"steps of {step}Gi {kind}",
            f"write {nearest_steps(spec.capacity_gib, step, 'Gi')}",
        )


def lustre_is_where_its_clients_are(target: AwsSpec, pools: Pools) -> Iterator[Finding]:
    """EFA reaches the filesystem in the same zone only, from machines that have EFA."""
    spec = target.filesystem
    if not isinstance(spec, LustreSpec):
        return
    zone = spec.zone or target.zones[0]
    path: KeyPath = ("target", "filesystem", "zone")
    if zone not in target.zones:
        yield unknown(path, zone, target.zones, "a zone of the stack")
    if not spec.efa:
        return
    clients = [pool for pool in pools if pool.fabric != "tcp"]
    if not clients:
        fix = "write `efa: false`, or add a pool of machines with EFA"
        yield ("target", "filesystem", "efa"), "true", "EFA where a pool has EFA", fix
    for pool in clients:
        if zone not in (pool.zones or target.zones):
            allowed = f"the zone of pool {pool.name!r}: {', '.join(pool.zones or ())}"
            yield path, repr(zone), allowed, "move the filesystem or the pool: EFA does not cross zones"


def a_linked_filesystem_has_no_snapshots(target: AwsSpec, storage: StorageSpec) -> Iterator[Finding]:
    """FSx takes none of a filesystem with a data repository: the bucket, with its versions, is the backup."""
    days = storage.checkpoints.snapshot_days
    if isinstance(target.filesystem, LustreSpec) and target.filesystem.is_linked and days:
        path: KeyPath = ("storage", "checkpoints", "snapshot_days")
        fix = "write 0 (the bucket keeps versions), or `link: false`"
        yield path, str(days), "0 for a filesystem that is linked to the bucket", fix


def what_an_existing_filesystem_has_is_its_owners(target: AwsSpec) -> Iterator[Finding]:
    """Links are settings of the filesystem, whose EFA security group differs from the stack's."""
    spec = target.filesystem
    if not isinstance(spec, LustreSpec) or spec.existing is None:
        return
    settings = {
        "efa": (spec.efa, "false: clients reach it over TCP"),
        "link": (spec.link and "link" in spec.model_fields_set, "nothing: its owner links it"),
    }
    for key, (asked, allowed) in settings.items():
        if asked:
            path: KeyPath = ("target", "filesystem", key)
            yield path, f"{key} with `existing`", allowed, "remove the key, or leave `existing` out"


ADDONS = ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-ebs-csi-driver")
"""EKS add-ons that an existing cluster must have, besides the filesystem's driver."""
DRIVERS = {"lustre": "aws-fsx-csi-driver", "efs": "aws-efs-csi-driver"}


def an_existing_cluster_is_in_an_existing_network(target: AwsSpec) -> Iterator[Finding]:
    """The cluster's nodes are in its VPC, and a VPC that the stack makes is empty."""
    fix = "name the cluster's VPC in `network.existing`, with a private subnet in each zone of the stack"
    yield from cluster_is_in_an_existing_network(target, fix)


def an_existing_cluster_can_take_the_stack(target: AwsSpec) -> Iterator[Finding]:
    """The stack's objects need this version, this access mode and these add-ons."""
    cluster = target.existing_cluster
    if cluster is None:
        return
    yield from cluster_has_a_supported_version(
        target, "aws eks update-cluster-version --name {name} --kubernetes-version {minor}"
    )
    if cluster.authentication_mode == "CONFIG_MAP":
        mode = "authenticationMode=API_AND_CONFIG_MAP"
        fix = f"`aws eks update-cluster-config --name {cluster.name} --access-config {mode}`"
        yield (
            (*EXISTING_CLUSTER, "authentication_mode"),
            "CONFIG_MAP",
            "API or API_AND_CONFIG_MAP: nodes and teams get access by access entries",
            fix,
        )
    needed = (*ADDONS, DRIVERS[target.filesystem.kind])
    if lacking := [addon for addon in needed if addon not in cluster.addons]:
        fix = "`aws eks create-addon`, each with its role by Pod Identity; then name them here"
        yield (*EXISTING_CLUSTER, "addons"), f"without {', '.join(lacking)}", ", ".join(needed), fix


def what_an_existing_cluster_has_is_its_owners(target: AwsSpec) -> Iterator[Finding]:
    """The stack grants its teams access, and does not change the cluster itself."""
    if target.existing_cluster is None:
        return
    access = target.access
    yield from access_is_the_clusters_owners(
        {
            "viewers": access.viewers,
            "break_glass": access.break_glass,
            "public_cidrs": access.public_cidrs,
            "private_cidrs": access.private_cidrs,
        }
    )


def claims_fit_the_filesystem(
    target: AwsSpec, storage: StorageSpec, teams: tuple[TeamSpec, ...]
) -> Iterator[Finding]:
    """Lustre has the size that was bought; EFS grows on its own."""
    spec = target.filesystem
    if isinstance(spec, LustreSpec):
        yield from claims_fit(spec.capacity_gib, storage, teams)


def groups_are_roles(teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """EKS knows IAM's principals; the identity provider decides which users may assume a role."""
    allowed = "the ARN of an IAM role or user: arn:aws:iam::123456789012:role/research"
    fix = "name the role that the identity provider gives this group; not one of its sessions (assumed-role)"
    yield from groups_are_spelled(teams, PRINCIPAL, allowed, fix)


CHECKS = Checks(
    __name__,
    declared_machines_fit_the_cloud,
    pools_agree_with_their_machines,
    the_api_server_is_not_public,
    zones_of_pools_are_the_stacks,
    an_existing_filesystem_is_in_an_existing_network,
)


def _is_known(region: str) -> bool:
    return any(region == known.name for known in catalog.regions("aws"))


def _machine(pool: NodePoolSpec, name: str | None) -> Machine | None:
    found = pool.find_machine(name)
    return found if found and found.cloud == "aws" else None


def _machines(pool: NodePoolSpec) -> list[Machine]:
    """The machines of a pool that are known, the first choice first."""
    names = (pool.machine, *(pool.alternatives or ()))
    return [machine for name in names if (machine := _machine(pool, name))]


def _is_block(pool: NodePoolSpec) -> bool:
    return pool.reservation is not None and pool.reservation.kind == "block"


def _kind(machine: Machine) -> tuple[object, ...]:
    return machine.accelerator, machine.num_accelerators, machine.fabric, machine.architecture


def _describe(machine: Machine) -> str:
    accelerators = f"{machine.num_accelerators} × {machine.accelerator or 'no accelerator'}"
    return f"{accelerators}, fabric {machine.fabric}, {machine.architecture}"
