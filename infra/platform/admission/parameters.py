"""Renders the ConfigMap that the admission policies read: each team's permitted values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import catalog
from catalog import Fabric, Sidecar
from catalog.fabric_lint import claims, networks
from infra.common import names
from infra.common.charts import Manifest
from infra.platform.base import PlatformContext, metadata
from infra.platform.fabric import host_claim, host_paths, pod_annotations, privileged_daemons
from infra.platform.jobs.runtimes import longest_grace_seconds, runtimes_of
from infra.stackfile.limits import limits_of
from infra.stackfile.queue import TeamSpec
from infra.targets.base import PoolSettings

PARAMETERS = "teams"
_SYSTEM_TAINTS = (
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Taints that Kubernetes lets every pod tolerate."""
_NODE_LABELS = (
    names.ACCELERATOR_LABEL,
    names.CAPACITY_LABEL,
    names.FABRIC_LABEL,
    names.POOL_LABEL,
    names.REGION_LABEL,
    names.ZONE_LABEL,
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
)
"""Labels by which pods may select nodes. The host name is not among them: it would bypass the queue's
choice."""
_DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' default grace period of a pod (core/v1, DefaultTerminationGracePeriodSeconds)."""


def config_map(context: PlatformContext, *, shared: bool) -> Manifest:
    """Return the parameters of all teams: `<team>.<list>` → its entries, joined by a comma.

    What is the same for all teams is not among them, since the API server converts this object anew for each
    pod.

    `shared` is whether teams share one filesystem, and so the datasets on it.
    """
    data = {
        f"{team.name}.{name}": ", ".join(entries)
        for team in context.stack.teams
        for name, entries in _of(team, context, shared=shared).items()
    }
    about = metadata(PARAMETERS, names.ADMISSION_NAMESPACE)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}


LISTS = (
    "accelerators",
    "annotations",
    "checkpoint_seconds",
    "claim_templates",
    "daemons",
    "fabric_devices",
    "fabric_networks",
    "fabric_parts",
    "fabric_settings",
    "job_pods",
    "node_accelerators",
    "node_labels",
    "pools",
    "priorities",
    "queues",
    "read_only_claims",
    "stack_images",
    "taints",
)
"""Lists of a team, in the ConfigMap."""


def lists_of_stack(context: PlatformContext) -> dict[str, list[str]]:
    """Return the lists that are the same for all teams: the policies themselves have them.

    Where the stack permits every region, registry or tag, that list is missing.
    """
    admission, residency = context.stack.admission, context.residency
    runtimes = (
        f"{name}={catalog.fabric(fabric).accelerator_resource}" for name, _, fabric in runtimes_of(context)
    )
    found: dict[str, Iterable[str]] = {
        "grace_seconds": [str(max(_DEFAULT_GRACE_SECONDS, longest_grace_seconds(context)))],
        "runtimes": runtimes,
    }
    if admission.digests:
        found["digests"] = ["true"]
    if admission.registries:
        found["registries"] = admission.registries
    if context.stack.operators.kueue != "off":
        found["topology_levels"] = context.topology_levels
    if residency is not None:
        found["regions"] = catalog.as_expressions(residency)
    return {name: sorted(set(entries)) for name, entries in found.items()}


def _of(team: TeamSpec, context: PlatformContext, *, shared: bool) -> dict[str, Sequence[str]]:
    """Return the lists of a team, from the pools that its queues have quota in."""
    pools = context.pools_of(team)
    pools_and_cpus = [*pools, *context.cpu_pools]
    fabrics = sorted({pool.fabric_class for pool in pools})
    by_size = sorted(pools, key=lambda pool: pool.accelerators_per_node)
    largest = {pool.accelerator_resource: pool.accelerators_per_node for pool in by_size}
    found = {
        **fabric_lists(_fabric_of_queues(team, context)),
        "accelerators": {pool.accelerator_resource for pool in pools},
        "annotations": [f"{key}={value}" for each in fabrics for key, value in pod_annotations(each).items()],
        "checkpoint_seconds": _checkpoint_seconds(team, context),
        "claim_templates": [template for fabric in fabrics for template in claims(fabric).values()],
        "daemons": [each for daemon in _daemons(fabrics) for each in containers_of(daemon, context.image)],
        "fabric_networks": _fabric_networks(fabrics),
        "job_pods": [str(limits_of(team, context.stack.queues, context.stack.pools).job_pods)],
        "node_accelerators": [f"{resource}={most}" for resource, most in largest.items()],
        "node_labels": {*_NODE_LABELS, *(label for pool in pools_and_cpus for label in pool.selector)},
        "pools": [pool.name for pool in pools_and_cpus],
        "read_only_claims": _read_only_claims(context, shared=shared),
        "stack_images": map(context.image, _stack_images(context, fabrics)),
        "taints": {*_SYSTEM_TAINTS, *_taints(pools), *_own_taints(context.cpu_pools)},
    }
    ordered = {
        "priorities": sorted(_priorities(team, context), key=lambda name: context.stack.priorities[name]),
        "queues": list(team.local_queues),
    }
    return {**{name: sorted(set(entries)) for name, entries in found.items()}, **ordered}


def _priorities(team: TeamSpec, context: PlatformContext) -> Iterable[str]:
    return team.priorities or context.stack.priorities


def _taints(pools: Iterable[PoolSettings]) -> Iterable[str]:
    """Yield the pools' taints and the names of their devices, which Kubernetes makes pods tolerate."""
    yield from _own_taints(pools)
    for pool in pools:
        yield pool.accelerator_resource
        yield from (name for name in catalog.fabric(pool.fabric_class).pod_resources if "/" in name)


def _own_taints(pools: Iterable[PoolSettings]) -> Iterable[str]:
    return (each["key"] for pool in pools for each in pool.tolerations)


def _daemons(fabrics: Iterable[str]) -> list[Sidecar]:
    return [daemon for daemon, _ in privileged_daemons(fabrics)]


def containers_of(daemon: Sidecar, image: Callable[[str], str]) -> Iterator[str]:
    """Yield the container of a daemon, in the format of the rule `daemon`."""
    yield f"image {image(daemon.image)}"
    yield f"name {daemon.name}"
    yield f"command {' '.join(daemon.command)}"
    yield f"probe {' '.join(daemon.ready)}"
    yield from (f"env {name}={value}" for name, value in daemon.environment.items())
    yield from (f"mount {host_claim(path)} {each.mount}" for path, each in daemon.host_paths.items())
    yield from (f"capability {name}" for name in daemon.capabilities)


def _fabric_of_queues(team: TeamSpec, context: PlatformContext) -> dict[str, Fabric]:
    """Return the fabric class of each local queue; of simulated accelerators no pod can use one."""
    flavors = {queue.name: queue.flavors for queue in context.stack.queues}
    found: dict[str, Fabric] = {}
    for name, queue in team.local_queues.items():
        pools = [context.pools[flavor.pool] for flavor in flavors[queue]]
        classes = {pool.fabric_class for pool in pools if names.SIMULATED_LABEL not in pool.labels}
        if len(classes) == 1:
            found[name] = catalog.fabric(classes.pop())
    return found


def _parts(fabric: Fabric) -> Iterator[str]:
    yield from (f"claim={template}" for template in claims(fabric.name).values())
    yield from (f"annotation={key}" for key in networks(fabric.name))
    yield from [f"container={fabric.daemon.name}"] if fabric.daemon else ()


def fabric_lists(fabrics: Mapping[str, Fabric]) -> dict[str, list[str]]:
    """Return what jobs of several nodes must have, or must not have, in a local queue of each class.

    Entries are `queue: what`, such as `default: rdma/ib=8`.
    """
    of_class: Mapping[str, Callable[[Fabric], Iterable[str]]] = {
        "fabric_devices": lambda fabric: (f"{name}={number}" for name, number in fabric.resources.items()),
        "fabric_parts": _parts,
        "fabric_settings": lambda fabric: fabric.refused,
    }
    return {
        name: [f"{queue}: {each}" for queue, fabric in fabrics.items() for each in listed(fabric)]
        for name, listed in of_class.items()
    }


def _checkpoint_seconds(team: TeamSpec, context: PlatformContext) -> Iterator[str]:
    """Limit of a checkpoint's time per local queue, `queue=seconds`.

    It is the shortest preemption notice less the margin. A queue without spot pools has no limit.
    """
    flavors = {queue.name: queue.flavors for queue in context.stack.queues}
    for name, queue in team.local_queues.items():
        pools = [context.pools[flavor.pool] for flavor in flavors[queue]]
        notices = [found for pool in pools if (found := pool.preemption_notice_seconds) is not None]
        if notices:
            yield f"{name}={min(notices) * (1 - catalog.NOTICE_MARGIN):g}"


def _fabric_networks(fabrics: Sequence[str]) -> list[str]:
    """Return NCCL's names of the pools' networks, where every pool of the team has one."""
    found = [catalog.fabric(each).environment.get("NCCL_NET", "") for each in fabrics]
    return found if all(found) else []


def _read_only_claims(context: PlatformContext, *, shared: bool) -> list[str]:
    """Return the claims that teams only read; private copies of datasets are none, since Jobs fill them."""
    common = [names.TRAINING_ENV, *([names.DATASETS_CLAIM] if shared else [])]
    paths: Mapping[str, bool] = {
        path: each.writable for fabric in context.fabrics for path, each in host_paths(fabric).items()
    }
    return [*common, *(host_claim(path) for path, writable in paths.items() if not writable)]


def _stack_images(context: PlatformContext, fabrics: Iterable[str]) -> list[str]:
    """Images that the stack itself names: its author has chosen them."""
    settings = context.settings
    daemons = [daemon.image for daemon in _daemons(fabrics)]
    return [settings.training_image, *settings.training_images.values(), *daemons]
