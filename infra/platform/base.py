"""Base class and shared context of the platform's layers, and metadata, Python environment and security
settings of their objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pulumi

import catalog
from catalog import fabric_lint
from infra.common import names
from infra.common.artifacts import Artifacts
from infra.common.charts import Manifest, Renderer
from infra.common.images import with_images
from infra.common.kubernetes_objects import (
    MANAGED_BY,
    Access,
    ExistingObject,
    KubernetesObject,
    ServingWebhooks,
    known_once_served,
)
from infra.stackfile import Stack
from infra.stackfile.queue import TeamSpec
from infra.targets.base import ClusterSettings, PoolSettings


@dataclass(frozen=True)
class PlatformContext:
    """Data that all layers use; it does not contain the target."""

    stack: Stack
    settings: ClusterSettings
    pools: Mapping[str, PoolSettings]
    access: Access
    artifacts: Artifacts
    renderer: Renderer
    residency: tuple[str, ...] | None = None
    """Regions where data may be (`trainyard:residency`); None: no restriction."""

    @property
    def training_env_claim(self) -> str:
        """Claim of the training environment, where pods mount it."""
        return names.training_env_claim(self.settings.training_env or "")

    def claim(self, volume: str, *, read_only: bool) -> dict[str, Any]:
        """Return the source of a pod's volume: a claim of its name, or of the present environment."""
        name = self.training_env_claim if volume == names.TRAINING_ENV else volume
        return {"claimName": name, "readOnly": read_only}

    @property
    def system_selector(self) -> dict[str, str]:
        """Node selector of the pool that runs operators."""
        return {names.CAPACITY_LABEL: "system"}

    @property
    def job_pools(self) -> list[PoolSettings]:
        """Pools that take jobs."""
        return [pool for pool in self.pools.values() if pool.accelerators_per_node]

    def image(self, reference: str) -> str:
        """Return an image as nodes pull it: from the mirror, and by its digest, where the stack has them."""
        return self.stack.images.pinned(self.settings.software.image(reference))

    def pools_of(self, team: TeamSpec) -> list[PoolSettings]:
        """Pools that a team's queues have quota in."""
        queues = [queue for queue in self.stack.queues if queue.name in team.queues]
        return [self.pools[flavor.pool] for queue in queues for flavor in queue.flavors]

    @property
    def cpu_pools(self) -> list[PoolSettings]:
        """Pools for work beside the jobs with accelerators; spot nodes may go at any moment."""
        return [
            pool
            for pool in self.pools.values()
            if not pool.accelerators_per_node and pool.capacity not in {"system", "spot"}
        ]

    @property
    def queued_pools(self) -> list[PoolSettings]:
        """Pools that a queue gives out."""
        return [*self.cpu_pools, *self.job_pools]

    @property
    def fabrics(self) -> list[str]:
        """Fabric classes that jobs run on."""
        return sorted({pool.fabric_class for pool in self.job_pools})

    @property
    def topology_levels(self) -> list[str]:
        """Labels of nodes that are levels of a topology of the queues."""
        has_racks = any(catalog.fabric(each).nvlink_domain for each in self.fabrics)
        return [*self.settings.topology_labels, *([self.settings.rack_label] if has_racks else [])]

    @property
    def has_resource_claims(self) -> bool:
        """Whether pods of jobs claim something by Dynamic Resource Allocation."""
        return any(fabric_lint.claims(fabric) for fabric in self.fabrics)

    @property
    def first_fabric(self) -> str:
        """The fabric class of the first queue's first flavor, which a job tries first."""
        return self.pools[self.stack.queues[0].flavors[0].pool].fabric_class


class Layer(pulumi.ComponentResource):
    """A part of the platform: a component whose children are Kubernetes objects."""

    def __init__(
        self,
        context: PlatformContext,
        role: str,
        inputs: Mapping[str, Any],
        parent: pulumi.Resource,
        operator: Sequence[pulumi.Resource] = (),
    ) -> None:
        """`operator` is what must serve before the layer's objects are made; its webhooks validate them."""
        kind = "".join(word.capitalize() for word in role.split("-"))
        name = f"{context.stack.name}-{role}"
        options = pulumi.ResourceOptions(parent=parent)
        super().__init__(f"trainyard:platform:{kind}", name, dict(inputs), options)
        self._access = context.access
        self._image = context.image
        self._existing = frozenset(getattr(context.stack.target, "existing_objects", ()))
        self._webhooks = [each for each in operator if isinstance(each, ServingWebhooks)]

    def add(
        self,
        manifest: Manifest,
        depends_on: Sequence[pulumi.Resource] = (),
        options: pulumi.ResourceOptions | None = None,
    ) -> KubernetesObject:
        """Declare an object, or read one that others have; `options` are merged into those of every child."""
        base = self._access.options(self, depends_on)
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        if f"{kind} {name}" in self._existing:
            return cast(KubernetesObject, ExistingObject(name, manifest["apiVersion"], kind, name, base))
        manifest = known_once_served(with_images(manifest, self._image), self._webhooks)
        return KubernetesObject(manifest, pulumi.ResourceOptions.merge(base, options))


def metadata(
    name: str, namespace: str | None = None, *, labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the metadata of an object that we write ourselves."""
    in_namespace = {"namespace": namespace} if namespace else {}
    return {"name": name, **in_namespace, "labels": {MANAGED_BY: "trainyard", **(labels or {})}}


HOME = "/home/trainyard"


def python_environment(settings: ClusterSettings) -> dict[str, str]:
    """Return the variables of containers that run Python.

    They name no folder of an image: a pod's PATH, PYTHONPATH or LD_LIBRARY_PATH would replace the image's,
    and hide its packages. Ours has the same folders whether its packages are inside or mounted.
    """
    return {"HOME": HOME, "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1", **settings.environment}


JOB_USER = 1000
"""UID of the training image's user, who owns the folders of volumes."""

RESTRICTED_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
RESTRICTED_POD = {
    "runAsNonRoot": True,
    "runAsUser": JOB_USER,
    "runAsGroup": JOB_USER,
    "fsGroup": JOB_USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""Pod security context that, with RESTRICTED_CONTAINER, satisfies Pod Security's level `restricted`."""
