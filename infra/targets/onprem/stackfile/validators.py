"""Checks of on-premises stack files: accelerators, NICs, fabric, address pools, node labels, air gap."""

from collections import Counter
from collections.abc import Iterator

import catalog
from infra.common import names
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.source import KeyPath
from infra.targets.cloud_validators import (
    amd_has_its_images,
    keys_of_clouds,
    the_object_store_has_no_size,
    vendor,
)
from infra.targets.onprem.stackfile.target import InfinibandSpec, OnpremSpec

Pools = tuple[NodePoolSpec, ...]

FABRICS = {
    "nvidia": (
        *("tcp", "ib-shared", "ib-sriov", "ib-hostdev", "nvl72", "ib-shared-nvl72"),
        *("roce-shared", "roce-sriov", "roce-hostdev"),
    ),
    "amd": ("rocm", "ib-shared-rocm", "roce-shared-rocm"),
}
"""Vendor of the accelerators → fabric classes that on-premises machines can have."""
IN_RACKS = {"nvl72": "tcp", "ib-shared-nvl72": "ib-shared"}
"""Fabric class with an NVLink domain → the same class without the domain."""
PREFIXES = {"infiniband": "ib-", "ethernet": "roce-"}
"""Link type of the NICs → prefix of their fabric classes' names."""
NUM_SHARED_NICS = 8
"""Number of RoCE interfaces in a pod that shares NICs; equals the number in the fabric class (catalogue:
fabrics.yaml)."""
OLDEST_GPU_DRIVER = 580
"""Oldest branch of NVIDIA's driver that runs CUDA 13 (NVIDIA, CUDA Compatibility, Minor Version
Compatibility)."""
_OF_CLOUDS = ("machine", "zones", "reservation", "spot_waiver", "max_run_hours")
"""Keys of a pool about buying nodes that are not features of a target."""


def pools_have_no_cloud_only_keys(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """These keys choose how a cloud sells nodes; here the nodes exist."""
    fix = "remove the key; describe the machines by `accelerator` and `fabric`"
    yield from keys_of_clouds(target, pools, _OF_CLOUDS, fix)


def accelerators_are_known(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """Pods request accelerators by a resource that the catalogue has."""
    known = [each.name for each in catalog.accelerators() if each.vendor in FABRICS]
    for index, pool in enumerate(pools):
        if pool.accelerator and pool.accelerator.model not in known:
            what = "an accelerator that the catalogue has for nodes on premises"
            yield unknown(("pools", index, "accelerator", "model"), pool.accelerator.model, known, what)


def fabrics_fit_the_accelerators(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """A class has the resource of its accelerators, and its NICs are NVIDIA's."""
    for index, pool in enumerate(pools):
        allowed = FABRICS.get(vendor(pool), ())
        if allowed and pool.fabric not in allowed:
            got = f"{pool.fabric!r} with {pool.accelerator.model}" if pool.accelerator else repr(pool.fabric)
            yield ("pools", index, "fabric"), got, " or ".join(allowed), f"write `fabric: {allowed[0]}`"


def racks_are_of_their_accelerators(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """Only rack systems (NVL72) have NVLink between nodes; a pool may use part of a rack."""
    racks = {each.name: each.rack for each in catalog.accelerators() if each.rack}
    for index, pool in enumerate(pools):
        if pool.accelerator is None or pool.fabric not in IN_RACKS:
            continue
        model, count = pool.accelerator.model, pool.accelerator.count
        rack = racks.get(model)
        if rack is None and vendor(pool) == "nvidia":
            got, allowed = f"{pool.fabric!r} with {model}", f"{' or '.join(racks)} with {pool.fabric}"
            yield ("pools", index, "fabric"), got, allowed, f"write `fabric: {IN_RACKS[pool.fabric]}`"
        if rack is not None and count != rack.accelerators:
            allowed = f"{rack.accelerators}: a machine of a rack of {rack.nvlink_domain}"
            fix = "count the GPUs of one machine, not those of the rack"
            yield ("pools", index, "accelerator", "count"), str(count), allowed, fix


def the_gpu_driver_runs_the_images_cuda(target: OnpremSpec) -> Iterator[Finding]:
    """With an older driver PyTorch sees no GPU; the operator's own driver is pinned."""
    path: KeyPath = ("target", "gpu_driver_version")
    version = target.gpu_driver_version
    if version is None:
        return
    if target.gpu_driver == "install" and target.gpu_operator == "install":
        fix = "remove the key, or write `gpu_driver: existing`"
        yield path, f"{version!r}, while the GPU Operator installs its own", "with drivers that exist", fix
    elif int(version.partition(".")[0]) < OLDEST_GPU_DRIVER:
        fix = "upgrade the driver; if jobs run in an image of yours for an older CUDA, remove the key"
        allowed = f"{OLDEST_GPU_DRIVER} or newer: PyTorch of training/images is built for CUDA 13"
        yield path, repr(version), allowed, fix


def pools_share_one_nic_access_mode(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """Two device plugins on one NIC would promise it twice."""
    first: tuple[int, str] | None = None
    for index, pool in enumerate(pools):
        way = IN_RACKS.get(pool.fabric, pool.fabric).removesuffix("-rocm")
        if not _uses_nics(pool):
            continue
        if first is not None and way != first[1]:
            allowed = f"{first[1]}, as in pools[{first[0]}]: one device plugin serves all NICs"
            yield ("pools", index, "fabric"), repr(pool.fabric), allowed, "choose one way for all pools"
        first = first or (index, way)


def classes_match_the_link_type(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """Device plugin, virtual functions and networks are made for one link."""
    if target.infiniband is None:
        return
    link = target.infiniband.link
    for index, pool in enumerate(pools):
        if _uses_nics(pool) and not pool.fabric.startswith(PREFIXES[link]):
            other = next(each for each, prefix in PREFIXES.items() if pool.fabric.startswith(prefix))
            allowed = f"a class that begins with {PREFIXES[link]} (infiniband.link: {link})"
            fix = f"name such a class, or write `link: {other}`"
            yield ("pools", index, "fabric"), repr(pool.fabric), allowed, fix


def ethernet_keys_need_ethernet(target: OnpremSpec) -> Iterator[Finding]:
    """RoCE's settings mean nothing to InfiniBand NICs."""
    nics = target.infiniband
    if nics is None or nics.link == "ethernet":
        return
    for key in ("interfaces", "mtu", "traffic_class", "gid_index"):
        if getattr(nics, key) not in (None, ()):
            fix = "remove the key, or write `link: ethernet`"
            path: KeyPath = ("target", "infiniband", key)
            yield path, f"{key} of InfiniBand NICs", "with `link: ethernet` only", fix


def ipoib_needs_infiniband(target: OnpremSpec) -> Iterator[Finding]:
    """IPoIB carries IP over InfiniBand; Ethernet carries it itself."""
    if nics := _ethernet(target):
        path: KeyPath = ("target", "infiniband", "ipoib")
        if nics.ipoib is not None:
            yield path, "IPoIB on Ethernet", "nothing: Ethernet has IP itself", "remove the key"


def roce_has_an_address_pool(target: OnpremSpec) -> Iterator[Finding]:
    """RoCE v2 runs over IP: an interface without an address has no GID for it."""
    nics = _ethernet(target)
    if nics and nics.pool is None:
        path: KeyPath = ("target", "infiniband", "pool")
        fix = "add `ip_pools:` and name one as `pool:`, a range that the switches of the fabric carry"
        yield path, "nothing", "an address pool with `link: ethernet`", fix


def shared_roce_lists_its_interfaces(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """The shared device plugin attaches pods to interfaces by name; other classes attach NICs."""
    nics = _ethernet(target)
    if nics is None:
        return
    path: KeyPath = ("target", "infiniband", "interfaces")
    is_shared = any(pool.fabric.startswith("roce-shared") for pool in pools)
    got = ", ".join(nics.interfaces) or "none"
    if is_shared and len(nics.interfaces) != NUM_SHARED_NICS:
        allowed = f"the {NUM_SHARED_NICS} interfaces of the NICs, on which pods get one each"
        fix = "name them as `ip link` shows them, or take roce-sriov or roce-hostdev"
        yield path, got, allowed, fix
    if nics.interfaces and not is_shared:
        yield path, got, "nothing: no pool shares its NICs", "remove the key"


def mtu_needs_virtual_functions(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """The stack sets the MTU of virtual functions; that of other NICs is set on the node."""
    nics = _ethernet(target)
    if nics and nics.mtu and not any(pool.fabric == "roce-sriov" for pool in pools):
        path: KeyPath = ("target", "infiniband", "mtu")
        fix = "remove the key, and set it on the NICs themselves"
        yield path, str(nics.mtu), "nothing: no pool has virtual functions", fix


def infiniband_is_described_where_it_is(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """The Network Operator finds the NICs by their PCI IDs."""
    path: KeyPath = ("target", "infiniband")
    used = [pool.name for pool in pools if _uses_nics(pool)]
    if used and target.infiniband is None and target.network_operator == "install":
        fix = "add `infiniband: {device_ids: [...]}`, or `network_operator: existing`"
        yield path, f"nothing, with pools on RDMA NICs: {', '.join(used)}", "the NICs", fix
    if target.infiniband is not None and not used:
        fix = "give a pool `fabric: ib-shared`, or remove the section"
        yield path, "NICs that no pool uses", "a pool with an ib-… or roce-… fabric", fix
    if target.infiniband is not None and target.network_operator == "existing":
        fix = "remove the section: the operator has a single NicClusterPolicy, of whoever installed it"
        yield path, "NICs for an existing operator", "nothing (network_operator: existing)", fix


def pools_of_addresses_exist(target: OnpremSpec) -> Iterator[Finding]:
    """Networks name the address pools that they use."""
    infiniband = target.infiniband
    if infiniband is None:
        return
    known = [pool.name for pool in infiniband.ip_pools]
    named: dict[KeyPath, str | None] = {("pool",): infiniband.pool}
    if infiniband.ipoib:
        named[("ipoib", "pool")] = infiniband.ipoib.pool
    for below, name in named.items():
        if name is not None and name not in known:
            yield unknown(("target", "infiniband", *below), name, known, "a pool of `ip_pools`")
    for index, name in enumerate(known):
        if name in known[:index]:
            path: KeyPath = ("target", "infiniband", "ip_pools", index, "name")
            yield path, repr(name), "each name once", "rename or remove one of the two"


def pools_of_addresses_are_apart_and_large_enough(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """Each node takes a separate block; nodes beyond the range would have no addresses."""
    ip_pools = target.infiniband.ip_pools if target.infiniband else ()
    num_nodes = sum(pool.num_nodes for pool in pools if _uses_nics(pool))
    for index, pool in enumerate(ip_pools):
        path: KeyPath = ("target", "infiniband", "ip_pools", index)
        for other in ip_pools[:index]:
            if pool.subnet.overlaps(other.subnet):
                got = f"{pool.subnet}, which overlaps {other.name} {other.subnet}"
                yield (*path, "subnet"), got, "ranges that do not overlap", "move one of the two ranges"
        needed = num_nodes * pool.per_node
        if needed > pool.subnet.num_addresses - 2:
            got = f"{pool.subnet} for {num_nodes} nodes with {pool.per_node} each"
            fix = "use a wider subnet, or lower per_node"
            yield (*path, "subnet"), got, f"{needed} addresses or more", fix
        if pool.gateway is not None and pool.gateway not in pool.subnet:
            fix = "name an address of the subnet, or leave the gateway out"
            yield (*path, "gateway"), str(pool.gateway), f"an address of {pool.subnet}", fix


def nodes_are_on_one_leaf(target: OnpremSpec, pools: Pools) -> Iterator[Finding]:
    """Each node has one pool and one leaf, and a pool has `num_nodes` nodes."""
    if target.leaves is None:
        return
    known = {pool.name: pool for pool in pools}
    seen: set[str] = set()
    found: Counter[str] = Counter()
    for index, leaf in enumerate(target.leaves):
        path: KeyPath = ("target", "leaves", index)
        if leaf.name in [each.name for each in target.leaves[:index]]:
            yield (*path, "name"), repr(leaf.name), "each leaf once", "list all of its nodes in one place"
        for pool, nodes in leaf.nodes.items():
            if pool not in known:
                yield unknown((*path, "nodes", pool), pool, known, "a pool of this stack")
            found[pool] += len(nodes)
            for position, node in enumerate(nodes):
                if node in seen:
                    fix = "remove one of the two"
                    yield (*path, "nodes", pool, position), repr(node), "each node once", fix
                seen.add(node)
    for position, pool_spec in enumerate(pools):
        if found[pool_spec.name] != pool_spec.num_nodes:
            allowed = f"{found[pool_spec.name]}: the nodes that target.leaves names for it"
            fix = "correct the number, or list the nodes"
            yield ("pools", position, "nodes"), str(pool_spec.num_nodes), allowed, fix


def labels_come_from_leaves_or_topology(target: OnpremSpec) -> Iterator[Finding]:
    """The stack labels the nodes, or it reads labels that they have."""
    if target.leaves is not None and target.topology is not None:
        path: KeyPath = ("target", "topology")
        fix = "remove one of the two: `leaves` sets the labels, `topology` names existing ones"
        yield path, "topology and leaves", "leaves or topology", fix


def levels_are_unique_and_above_the_host(target: OnpremSpec) -> Iterator[Finding]:
    """Kueue's Topology takes each label once, and the host is its last level."""
    labels = target.topology or ()
    for index, label in enumerate(labels):
        path: KeyPath = ("target", "topology", index)
        if label == names.HOSTNAME_LABEL:
            fix = "remove it: the host is the last level in any case"
            yield path, repr(label), "levels of the network above the host", fix
        elif label in labels[:index]:
            yield path, repr(label), "each label once", "remove it, or name the label of another level"


def behind_an_air_gap_images_are_in_the_mirror(target: OnpremSpec) -> Iterator[Finding]:
    """User images get no mirror prefix, so they must already be in the mirror."""
    if target.mirror is None:
        return
    host = target.mirror.registry.partition("/")[0]
    own: dict[KeyPath, str] = {("training_image",): target.training_image}
    if target.amd:
        own[("amd", "training_image")] = target.amd.training_image
    for below, image in own.items():
        if image.partition("/")[0] != host:
            fix = f"push it there: {host}/…"
            yield ("target", *below), repr(image), f"an image of the mirror's registry, {host}", fix


CHECKS = Checks(__name__, amd_has_its_images, the_object_store_has_no_size)


def _ethernet(target: OnpremSpec) -> InfinibandSpec | None:
    nics = target.infiniband
    return nics if nics is not None and nics.link == "ethernet" else None


def _uses_nics(pool: NodePoolSpec) -> bool:
    ours = {fabric for fabrics in FABRICS.values() for fabric in fabrics}
    return pool.fabric in ours and pool.fabric.startswith(tuple(PREFIXES.values()))
