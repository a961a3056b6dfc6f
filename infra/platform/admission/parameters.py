"""What differs from team to team: lists of text in one ConfigMap, made from the stack file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import catalog
from infra import names
from infra.charts import Manifest
from infra.platform.base import Context, metadata
from infra.platform.fabric import claims, host_claim, host_paths
from infra.spec.queue import TeamSpec
from infra.targets.base import PoolSettings

PARAMETERS = "teams"
_SYSTEM_TAINTS = (
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
)
"""Kubernetes adds tolerations of these to every pod."""
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
"""Labels that say what a node is. Not its name: who asks for that passes over the queue's choice."""


def config_map(context: Context) -> Manifest:
    """Return the parameters of all teams: `<team>.<list>` → its entries, joined by a comma."""
    data = {
        f"{team.name}.{name}": ", ".join(entries)
        for team in context.stack.teams
        for name, entries in _of(team, context).items()
    }
    about = metadata(PARAMETERS, names.ADMISSION_NAMESPACE)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}


LISTS = (
    "accelerators",
    "capabilities",
    "claim_templates",
    "digests",
    "fabric_resources",
    "node_labels",
    "pools",
    "priorities",
    "queues",
    "read_only_claims",
    "registries",
    "root_images",
    "stack_images",
    "taints",
)


def _of(team: TeamSpec, context: Context) -> dict[str, Sequence[str]]:
    """Return the lists of a team, by the pools that its queues lead to."""
    pools = _pools(team, context)
    fabrics = sorted({pool.fabric_class for pool in pools})
    admission = context.stack.admission
    found = {
        "accelerators": {pool.accelerator_resource for pool in pools},
        "capabilities": _capabilities(fabrics),
        "claim_templates": [template for fabric in fabrics for template in claims(fabric).values()],
        "digests": ["true"] if admission.digests else [],
        "fabric_resources": _fabric_resources(fabrics),
        "node_labels": {*_NODE_LABELS, *(label for pool in pools for label in pool.selector)},
        "pools": [pool.name for pool in pools],
        "read_only_claims": _read_only_claims(context),
        "registries": admission.registries,
        "root_images": _moved(_daemons(fabrics), context),
        "stack_images": _moved(_stack_images(context, fabrics), context),
        "taints": {*_SYSTEM_TAINTS, *_taints(pools)},
    }
    ordered = {
        "priorities": sorted(_priorities(team, context), key=lambda name: context.stack.priorities[name]),
        "queues": list(team.local_queues),
    }
    return {**{name: sorted(set(entries)) for name, entries in found.items()}, **ordered}


def _pools(team: TeamSpec, context: Context) -> list[PoolSettings]:
    queues = [queue for queue in context.stack.queues if queue.name in team.queues]
    return [context.pools[flavor.pool] for queue in queues for flavor in queue.flavors]


def _priorities(team: TeamSpec, context: Context) -> Iterable[str]:
    return team.priorities or context.stack.priorities


def _taints(pools: Iterable[PoolSettings]) -> Iterable[str]:
    """Kubernetes adds a toleration of each device that a pod asks for, by the name of the resource."""
    for pool in pools:
        yield from (each["key"] for each in pool.tolerations)
        yield pool.accelerator_resource
        yield from (name for name in catalog.fabric(pool.fabric_class).pod_resources if "/" in name)


def _capabilities(fabrics: Iterable[str]) -> list[str]:
    found = [catalog.fabric(fabric) for fabric in fabrics]
    daemons = [each.daemon.capabilities for each in found if each.daemon]
    return [name for names in (*(each.capabilities for each in found), *daemons) for name in names]


def _daemons(fabrics: Iterable[str]) -> list[str]:
    found = [catalog.fabric(fabric).daemon for fabric in fabrics]
    return [daemon.image for daemon in found if daemon]


def _fabric_resources(fabrics: Sequence[str]) -> list[str]:
    """Only where every pool of the team has a fabric: else a job may be meant for one without."""
    found = [[name for name in catalog.fabric(each).pod_resources if "/" in name] for each in fabrics]
    return [name for names in found for name in names] if all(found) else []


def _read_only_claims(context: Context) -> list[str]:
    shared = [names.TRAINING_ENV_CLAIM, names.DATASETS_CLAIM]
    paths: Mapping[str, bool] = {
        path: each.writable for fabric in context.fabrics for path, each in host_paths(fabric).items()
    }
    return [*shared, *(host_claim(path) for path, writable in paths.items() if not writable)]


def _stack_images(context: Context, fabrics: Iterable[str]) -> list[str]:
    """Images that the stack itself names: its author has chosen them."""
    settings = context.settings
    return [settings.training_image, *settings.training_images.values(), *_daemons(fabrics)]


def _moved(images: Iterable[str], context: Context) -> list[str]:
    """As pods have them: through the mirror, where there is one."""
    software = context.settings.software
    return [software.image(image) if software.moves_images else image for image in images]
