from typing import ClassVar, cast

import pulumi
from pulumi_kubernetes import Provider

from infra.common import names
from infra.common.artifacts import Artifacts
from infra.common.kubernetes_objects import Access
from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.target import TargetKind
from infra.targets.base import Cluster, ClusterOutputs, ClusterSettings, PoolSettings, make_pool_settings
from tests.infra.targets.toy.stackfile import ToySpec


class ToyCluster(Cluster):
    """The toy target's component: settings and outputs of the contract, a provider, and one resource."""

    KIND: ClassVar[TargetKind] = "toy"

    def __init__(
        self, stack: Stack, artifacts: Artifacts, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(stack, artifacts, opts)
        spec = cast(ToySpec, stack.target)
        self.pools = {pool.name: _pool(pool) for pool in stack.pools}
        self.settings = ClusterSettings(
            name=stack.name,
            kubernetes_version=spec.kubernetes_version,
            topology_labels=(names.HOSTNAME_LABEL,),
            data_dir="",
            training_image=artifacts.training_image,
            serves_object_store=False,
        )
        within = pulumi.ResourceOptions(parent=self)
        toys = pulumi.ProviderResource("toys", stack.name, {}, within)
        at_toys = pulumi.ResourceOptions(parent=self, provider=toys)
        pulumi.CustomResource("toys:index:Box", stack.name, {"label": stack.name}, opts=at_toys)
        kubeconfig = pulumi.Output.secret("toy")
        provider = Provider(stack.name, kubeconfig=kubeconfig, opts=within)
        self.access = Access(kubeconfig, provider, None)
        self.outputs = ClusterOutputs(
            endpoint=pulumi.Output.from_input(spec.address),
            ca_certificate=pulumi.Output.from_input(""),
            kubeconfig=kubeconfig,
            shared_class="toys",
        )
        self.register_outputs({"endpoint": self.outputs.endpoint})


def _pool(pool: NodePoolSpec) -> PoolSettings:
    labels = {names.POOL_LABEL: pool.name, names.CAPACITY_LABEL: pool.capacity}
    return make_pool_settings(pool, labels=labels, preemption_notice_seconds=60 if pool.is_spot else None)
