"""Checks of stack files of `kind: local`: simulated accelerators, no cloud properties, network ranges, a size
for the object store, and the limits of an embedded cluster.
"""

from collections.abc import Iterator

from infra.stackfile.finding import Checks, Finding
from infra.stackfile.images import ImagesSpec
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.cloud_validators import keys_of_clouds, networks_are_apart
from infra.targets.local.stackfile.target import LocalSpec

Pools = tuple[NodePoolSpec, ...]
MAX_EMBEDDED_NAME = 12
MAX_EMBEDDED_NODES = 64
_OF_CLOUDS = ("machine", "zones", "reservation", "max_run_hours")
"""Keys of a pool about buying nodes that are not features of a target."""


def local_accelerators_are_simulated(pools: Pools) -> Iterator[Finding]:
    """Figures of the local target must not be taken for those of real hardware."""
    for index, pool in enumerate(pools):
        if pool.accelerator and pool.accelerator.model != "simulated":
            path = ("pools", index, "accelerator", "model")
            yield (
                path,
                repr(pool.accelerator.model),
                "simulated (kind: local has no GPUs)",
                "write `simulated`",
            )


def local_pools_have_no_cloud(target: LocalSpec, pools: Pools) -> Iterator[Finding]:
    """Properties of a purchase from a cloud mean nothing on this host."""
    yield from keys_of_clouds(target, pools, _OF_CLOUDS, "remove the key, or choose a cloud")


def local_networks_have_usable_sizes(target: LocalSpec) -> Iterator[Finding]:
    """Each of 64 nodes has a /24 for its pods; the API server takes no Service range above /12."""
    limits = {"pod_cidr": (8, 16, 18), "service_cidr": (12, 16, 24), "node_cidr": (8, 24, 25)}
    for name, (shortest, usual, longest) in limits.items():
        network = getattr(target.network, name)
        if not shortest <= network.prefixlen <= longest:
            allowed = f"a prefix of /{shortest} to /{longest}"
            path = ("target", "network", name)
            yield path, str(network), allowed, f"use a prefix such as /{usual}"


def embedded_clusters_are_small(name: str, target: LocalSpec, pools: Pools) -> Iterator[Finding]:
    """Linux allows 15 characters in the name of a network interface, of which three are ours."""
    if target.cluster != "embedded":
        return
    if len(name) > MAX_EMBEDDED_NAME:
        allowed = f"at most {MAX_EMBEDDED_NAME} characters for an embedded cluster"
        yield ("name",), repr(name), allowed, f"shorten it by {len(name) - MAX_EMBEDDED_NAME}"
    num_nodes = sum(pool.num_nodes for pool in pools)
    if num_nodes > MAX_EMBEDDED_NODES:
        allowed = f"at most {MAX_EMBEDDED_NODES} nodes on one host"
        yield ("pools",), f"{num_nodes} nodes", allowed, "lower `nodes`, or use a cluster by `context:`"


def imported_images_have_no_digests(target: LocalSpec, images: ImagesSpec) -> Iterator[Finding]:
    """Nodes of the embedded cluster pull nothing: images are made here, of what versions.yaml pins."""
    if target.cluster == "embedded" and images.digests:
        got = f"{len(images.digests)} images"
        yield ("images", "digests"), got, "nothing, on the embedded cluster", "remove the key"


CHECKS = Checks(__name__, networks_are_apart)
