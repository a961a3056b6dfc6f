"""Checks of CoreWeave stack files (zone, network, machines, racks, autoscaling, bucket, teams) for what
CoreWeave refuses or what would not work there.
"""

from collections.abc import Iterator

import catalog
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.queue import QueueSpec, TeamSpec
from infra.stackfile.source import KeyPath
from infra.stackfile.storage import StorageSpec
from infra.targets import cloud_validators
from infra.targets.cloud_validators import (
    declared_machines_fit_the_cloud,
    flavors_that_come_one_by_one,
    machine_is_sold,
    networks_are_apart,
    pools_agree_with_their_machines,
    the_object_store_has_no_size,
    with_machines,
)
from infra.targets.coreweave.stackfile.target import MAX_NAME, CoreweaveSpec

Pools = tuple[NodePoolSpec, ...]

NODE_POD_ADDRESSES = 256
"""Addresses of the pods' range that a node with 110 pods uses."""
RESERVED_BUCKETS = ("cw-", "vip-", "log-stitcher-ch-")
"""Name prefixes of CoreWeave's own buckets (AI Object Storage: buckets, read 2026-11-22)."""


def the_zone_is_known(target: CoreweaveSpec) -> Iterator[Finding]:
    """The zone must be one of CoreWeave's, spelled exactly."""
    known = [zone.name for zone in catalog.regions("coreweave")]
    if target.zone not in known:
        yield unknown(("target", "zone"), target.zone, known, "a zone of CoreWeave")


def the_name_is_short(target: CoreweaveSpec, name: str) -> Iterator[Finding]:
    """The cluster has the stack's name, which is limited."""
    if len(name) > MAX_NAME:
        allowed = f"at most {MAX_NAME} characters (CKS)"
        yield ("name",), repr(name), allowed, f"shorten it by {len(name) - MAX_NAME}"


def the_network_holds_the_pods(target: CoreweaveSpec, pools: Pools) -> Iterator[Finding]:
    """The pods' range cannot be widened later."""
    needed = NODE_POD_ADDRESSES * sum(pool.num_nodes for pool in pools)
    if target.network.pods.num_addresses < needed:
        allowed = f"{needed} addresses or more ({NODE_POD_ADDRESSES} per node)"
        fix = "use a wider range, such as a /13: it cannot be enlarged later"
        yield ("target", "network", "pods"), str(target.network.pods), allowed, fix


def machines_exist(target: CoreweaveSpec, pools: Pools) -> Iterator[Finding]:
    """Every pool names its machine type, and every machine is in the catalogue, and in the zone."""
    what, listed_by = "an instance type of CoreWeave", "`trainyard catalog machines --cloud coreweave`"
    yield from cloud_validators.machines_exist(target, pools, what=what, listed_by=listed_by)
    for index, pool, machine in with_machines("coreweave", pools):
        yield from machine_is_sold(index, pool, machine, target.zone)


def racks_are_whole(target: CoreweaveSpec, pools: Pools) -> Iterator[Finding]:
    """CKS gives no part of a rack."""
    for index, pool, machine in with_machines("coreweave", pools):
        rack = catalog.find_rack(machine.accelerator or "")
        if rack and pool.num_nodes % rack.machines:
            allowed = f"a multiple of {rack.machines}: {machine.name} is sold by the rack"
            fix = f"write {cloud_validators.nearest_steps(pool.num_nodes, rack.machines)}"
            yield ("pools", index, "nodes"), str(pool.num_nodes), allowed, fix


def provisioning_suits_the_pool(target: CoreweaveSpec, pools: Pools) -> Iterator[Finding]:
    """CKS's autoscaler adds nodes one by one, in half an hour, and no part of a rack."""
    for index, pool in enumerate(pools):
        path: KeyPath = ("pools", index, "provisioning")
        machine = pool.find_machine(pool.machine)
        if pool.max_run_hours:
            fix = "remove it: CKS deletes idle nodes, at any age"
            hours: KeyPath = ("pools", index, "max_run")
            yield hours, f"{pool.max_run_hours}h", "nothing (kind: coreweave)", fix
        if pool.provisioning == "all-at-once":
            allowed = "node-by-node: CKS cannot provision all nodes of a job at once"
            fix = "remove it if a queue counts the nodes, else write node-by-node"
            yield path, "'all-at-once'", allowed, fix
        elif pool.provisioning and pool.label in ("system", "reserved"):
            got = f"{pool.provisioning} on a {pool.label} pool"
            allowed = (
                "on-demand or spot: operators need permanent nodes, and an idle reservation costs the same"
            )
            yield path, got, allowed, "remove `provisioning:`"
        elif pool.provisioning and machine and catalog.find_rack(machine.accelerator or ""):
            allowed = f"a fixed number of nodes: CKS scales no racks ({machine.name})"
            yield path, repr(pool.provisioning), allowed, "remove `provisioning:`"


def queues_have_pools_with_fixed_nodes(
    target: CoreweaveSpec, pools: Pools, queues: tuple[QueueSpec, ...]
) -> Iterator[Finding]:
    """Kueue counts existing nodes, and CKS adds none before pods wait."""
    for path, got in flavors_that_come_one_by_one(pools, queues):
        fix = "remove `provisioning:` from the pool, or use it only for pods outside of the queue"
        yield path, got, "pools of a fixed size", fix


def pools_are_in_the_stacks_zone(target: CoreweaveSpec, pools: Pools) -> Iterator[Finding]:
    """A CKS cluster is in one zone."""
    for index, pool in enumerate(pools):
        if pool.zones is not None and pool.zones != (target.zone,):
            allowed = f"{target.zone}: a cluster of CoreWeave is in one zone"
            yield ("pools", index, "zones"), ", ".join(pool.zones), allowed, "leave `zones` out"


def reservations_have_no_name(target: CoreweaveSpec, pools: Pools) -> Iterator[Finding]:
    """Nodes of an organisation's reservation go to the first that requests them."""
    for index, pool in enumerate(pools):
        if pool.reservation is not None:
            fix = "remove it: the organisation's reserved instances are used automatically"
            yield ("pools", index, "reservation"), repr(pool.reservation.id), "nothing (CoreWeave)", fix


def the_bucket_has_a_name_that_coreweave_takes(
    target: CoreweaveSpec, storage: StorageSpec
) -> Iterator[Finding]:
    """Some names are CoreWeave's own."""
    bucket = storage.object_store.bucket
    if bucket == "int" or bucket.startswith(RESERVED_BUCKETS):
        allowed = f"a name other than int that begins with none of {', '.join(RESERVED_BUCKETS)}"
        yield ("storage", "object_store", "bucket"), repr(bucket), allowed, "choose another name"


def groups_come_from_somewhere(target: CoreweaveSpec, teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """CoreWeave's own tokens have no groups of yours."""
    if target.oidc is None and any(team.groups for team in teams):
        fix = "describe it (issuer_url, client_id), or leave the teams' groups out"
        yield ("target", "oidc"), "nothing", "an identity provider where teams have groups", fix


def the_bucket_policy_is_of_a_bucket_of_the_stack(target: CoreweaveSpec) -> Iterator[Finding]:
    """A bucket has one policy: the stack's would replace the owner's."""
    if target.bucket_policy and target.existing_bucket:
        allowed = "nothing for an existing bucket, whose policy is its owner's"
        fix = "add the statements to the bucket's policy, or let the stack create the bucket"
        yield ("target", "bucket_policy"), "a policy", allowed, fix


def teams_share_no_principal(target: CoreweaveSpec, teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """A principal of two teams would open both folders, and a team without one opens none."""
    if target.bucket_policy is None:
        return
    path: KeyPath = ("target", "bucket_policy", "teams")
    known, taken = [team.name for team in teams], list(target.bucket_policy.administrators)
    for name, principal in target.bucket_policy.teams.items():
        if name not in known:
            yield unknown((*path, name), name, known, "a team of this stack")
        if principal in taken:
            fix = "create keys of another user or role for this team"
            yield (*path, name), repr(principal), "a principal that no other entry has", fix
        taken.append(principal)
    for name in known:
        if name not in target.bucket_policy.teams:
            yield path, f"nothing for {name}", "every team of the stack", f"add `{name}:` with its principal"


CHECKS = Checks(
    __name__,
    declared_machines_fit_the_cloud,
    networks_are_apart,
    pools_agree_with_their_machines,
    the_object_store_has_no_size,
)
