"""The platform's component: declares all Kubernetes layers that a stack and its target need, in order."""

from collections.abc import Callable, Mapping

import pulumi

from infra.common.artifacts import Artifacts
from infra.common.charts import Renderer
from infra.platform.admission.layer import Admission
from infra.platform.base import PlatformContext
from infra.platform.controller import Controller
from infra.platform.jobs.resource_claims import ResourceClaims
from infra.platform.jobs.runtimes import Runtimes
from infra.platform.jobs.topologies import Topologies, topologies_of
from infra.platform.namespaces import Namespaces
from infra.platform.node_software.device_plugins import DevicePlugins
from infra.platform.node_software.node_software import NodeSoftware
from infra.platform.operators import autoscaler, jobset, kueue, mpi, trainer, training_operator
from infra.platform.operators.autoscaler import Autoscaler
from infra.platform.operators.operator import DefinitionsLayer, Operator, OperatorPlan
from infra.platform.storage.datasets import Datasets
from infra.platform.storage.logs import Logs
from infra.platform.storage.object_store import ObjectStoreLayer
from infra.platform.storage.storage import StorageLayer
from infra.platform.teams.limits import Limits
from infra.platform.teams.networks import Networks
from infra.platform.teams.queues import Queues
from infra.platform.teams.role_bindings import RoleBindings
from infra.platform.teams.uploads import Uploads
from infra.stackfile import Stack
from infra.stackfile.operators import OperatorsSpec
from infra.targets.base import Cluster

PLANS: Mapping[str, Callable[[PlatformContext], OperatorPlan]] = {
    "jobset": jobset.plan,
    "trainer": trainer.plan,
    "mpi": mpi.plan,
    "kueue": kueue.plan,
    "training_operator": training_operator.plan,
}


class Platform(pulumi.ComponentResource):
    """Operators, storage, queues and runtimes of one cluster."""

    def __init__(
        self,
        stack: Stack,
        cluster: Cluster,
        artifacts: Artifacts,
        opts: pulumi.ResourceOptions | None = None,
        residency: tuple[str, ...] | None = None,
    ) -> None:
        inputs = {"operators": stack.operators.model_dump()}
        super().__init__("trainyard:infra:Platform", stack.name, inputs, opts)
        renderer = Renderer(artifacts, cluster.settings.kubernetes_version)
        context = PlatformContext(
            stack, cluster.settings, cluster.pools, cluster.access, artifacts, renderer, residency
        )
        plans = [PLANS[name](context) for name in _installed(stack.operators)]
        has_data = bool(cluster.outputs.shared_class)
        namespaces = Namespaces(context, [plan.namespace for plan in plans], self, has_data=has_data)
        Admission(context, namespaces, cluster.outputs, self)
        Networks(context, namespaces, self)
        Limits(context, namespaces, cluster.outputs, self)
        if stack.operators.needs_controller:
            Controller(context, namespaces, self)
        if any(team.groups for team in stack.teams):
            RoleBindings(context, namespaces, self)
        more = [autoscaler.requests(context)] if cluster.settings.autoscaler else []
        definitions = DefinitionsLayer(context, [*plans, *more], self)
        if cluster.settings.autoscaler:
            Autoscaler(context, cluster.settings.autoscaler, definitions, self)
        software = NodeSoftware(context, self).ready if cluster.settings.software.installs_any else []
        if cluster.settings.device_plugins:
            DevicePlugins(context, self)
        if context.has_resource_claims:
            ResourceClaims(context, namespaces, software, self)
        if topologies_of(context.fabrics):
            Topologies(context, namespaces, self)
        storage = StorageLayer(context, namespaces, cluster.outputs, self, software)
        if stack.logs.kept:
            Logs(context, namespaces, storage, self)
        if cluster.settings.serves_object_store:
            keys = cluster.outputs.object_store_keys
            assert keys is not None, "the target gives the keys of a store that the platform serves"
            ObjectStoreLayer(context, namespaces, storage, keys=keys, parent=self)
        operators = {
            plan.name: Operator(
                context,
                plan,
                definitions=definitions,
                namespace=namespaces.by_name[plan.namespace],
                # Kueue's webhook validates every Job, so the storage Job runs before the webhook exists.
                before_webhooks=storage.folders,
                parent=self,
            )
            for plan in plans
        }
        shared = cluster.outputs.volume_source is not None
        self._serve_jobs(context, namespaces, storage, operators, shared=shared)
        self.register_outputs({})

    def _serve_jobs(
        self,
        context: PlatformContext,
        namespaces: Namespaces,
        storage: StorageLayer,
        operators: Mapping[str, Operator],
        *,
        shared: bool,
    ) -> None:
        """Queues, data, code and runtimes; `shared` is whether teams share one filesystem."""
        stack = context.stack
        queues: list[pulumi.Resource] = []
        if stack.operators.kueue != "off":
            queues = Queues(context, namespaces, _ready(operators, "kueue"), self).ready
        if stack.datasets:
            Datasets(context, namespaces, storage, shared=shared, queues=queues, parent=self)
        if stack.operators.trainer != "off":
            Uploads(context, namespaces, storage, self)
            Runtimes(context, _ready(operators, "trainer"), self)


def _installed(spec: OperatorsSpec) -> list[str]:
    """Name the operators that we install; an existing one is not changed."""
    modes = {name: getattr(spec, name) for name in PLANS}
    return [
        name for name, mode in modes.items() if mode == "install" or (name == "training_operator" and mode)
    ]


def _ready(operators: Mapping[str, Operator], name: str) -> list[pulumi.Resource]:
    return list(operators[name].ready) if name in operators else []
