"""The local target's component: an embedded cluster, a kind cluster, or any kube context."""

import base64
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import pulumi
import yaml

import catalog
from infra.common import names
from infra.common.artifacts import LINKS, Artifacts
from infra.common.kubernetes_objects import claim_and_connect
from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.target import ContextCluster, TargetKind
from infra.targets.base import (
    OTHERS_DNS,
    Cluster,
    ClusterOutputs,
    ClusterSettings,
    PoolSettings,
    VolumeSource,
    make_pool_settings,
    pool_labels,
    pool_taints,
)
from infra.targets.kubeconfig import kubeconfig_without_credentials
from infra.targets.local.cluster import kind_config
from infra.targets.local.stackfile.target import LocalSpec


class EmbeddedCluster(pulumi.CustomResource):
    """A real Kubernetes cluster on this host, which our own provider creates, updates and removes."""

    _OUTPUTS = ("endpoint", "caCertificate", "kubeconfig", "objectStoreAccessKey", "objectStoreSecretKey")
    _SECRETS = ("kubeconfig", "objectStoreAccessKey", "objectStoreSecretKey")

    def __init__(self, name: str, inputs: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        secret = pulumi.ResourceOptions(additional_secret_outputs=list(self._SECRETS))
        properties = {**inputs, **dict.fromkeys(self._OUTPUTS)}
        options = pulumi.ResourceOptions.merge(opts, secret)
        super().__init__("trainyard:local:EmbeddedCluster", name, properties, options)

    def output(self, name: str) -> pulumi.Output[str]:
        """Return an output by the name that the plugin gives it."""
        found: pulumi.Output[str] = getattr(self, name)
        return found


class ReadyNodes(pulumi.CustomResource):
    """Waits until all nodes of the cluster accept pods. Objects of the platform are created meanwhile."""

    def __init__(self, name: str, cluster: EmbeddedCluster, opts: pulumi.ResourceOptions) -> None:
        owned = pulumi.ResourceOptions(depends_on=[cluster], deleted_with=cluster)
        inputs = {"cluster": name}
        super().__init__(
            "trainyard:local:ReadyNodes", name, inputs, pulumi.ResourceOptions.merge(opts, owned)
        )


@dataclass(frozen=True)
class _ControlPlane:
    outputs: ClusterOutputs
    owner: pulumi.Resource | None
    """Resource whose deletion deletes all objects in the cluster."""


class LocalCluster(Cluster):
    """Real Kubernetes with simulated accelerators."""

    KIND: ClassVar[TargetKind] = "local"

    def __init__(
        self, stack: Stack, artifacts: Artifacts, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(stack, artifacts, opts)
        spec = cast(LocalSpec, stack.target)
        self.pools = {pool.name: _pool_settings(pool) for pool in stack.pools}
        self.settings = _cluster_settings(stack, spec, artifacts)
        control_plane = self._control_plane(stack, spec)
        self.outputs = control_plane.outputs
        self.access = claim_and_connect(stack.name, self.outputs.kubeconfig, control_plane.owner, self)
        self.register_outputs({"endpoint": self.outputs.endpoint})

    def _control_plane(self, stack: Stack, spec: LocalSpec) -> _ControlPlane:
        source = partial(_host_path, self.settings.data_dir)
        if isinstance(spec.cluster, ContextCluster):
            return _existing(kubeconfig_without_credentials(spec.cluster.context), source)
        if spec.cluster == "kind":
            return _existing(_kind_kubeconfig(stack, spec, self.settings, self.pools), source)
        # Nodes import images when their config changes, so a new training image must change it.
        image = {names.TRAINING_IMAGE_LABEL: self.settings.training_image.rpartition(":")[2]}
        inputs = embedded_inputs(stack, spec, self.settings, self.pools, image)
        cluster = EmbeddedCluster(stack.name, inputs, pulumi.ResourceOptions(parent=self))
        ReadyNodes(stack.name, cluster, pulumi.ResourceOptions(parent=self))
        outputs = ClusterOutputs(
            endpoint=cluster.output("endpoint"),
            ca_certificate=cluster.output("caCertificate"),
            kubeconfig=cluster.output("kubeconfig"),
            volume_source=source,
            object_store_keys=(
                pulumi.Output.secret(cluster.output("objectStoreAccessKey")),
                pulumi.Output.secret(cluster.output("objectStoreSecretKey")),
            ),
        )
        return _ControlPlane(outputs, cluster)


def embedded_inputs(
    stack: Stack,
    spec: LocalSpec,
    settings: ClusterSettings,
    pools: Mapping[str, PoolSettings],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Return the inputs of EmbeddedCluster, as plain data; `labels` are for every node."""
    size_gib = stack.storage.object_store.size_gib
    return {
        "name": stack.name,
        "kubernetesVersion": spec.kubernetes_version,
        "nodes": [
            {
                "name": name,
                "pool": pool.name,
                "gpus": pool.accelerators_per_node,
                "labels": {**pool.labels, **labels},
                "taints": [dict(taint) for taint in pool.taints],
                "images": _images(pool, stack),
            }
            for pool in pools.values()
            for name in pool.node_names
        ],
        "podCidr": str(spec.network.pod_cidr),
        "serviceCidr": str(spec.network.service_cidr),
        "nodeCidr": str(spec.network.node_cidr),
        "dataDir": settings.data_dir,
        "volumeSizes": {names.OBJECT_STORE: size_gib} if size_gib else {},
    }


def _images(pool: PoolSettings, stack: Stack) -> list[str]:
    """Names of the pinned images that the pool's nodes need; there is no registry to pull from."""
    operators = stack.operators
    everywhere = [*(["otel-collector"] if stack.logs.kept else []), "training"]
    if pool.capacity != "system":
        return everywhere
    modes = {
        "jobset-manager": operators.jobset,
        "trainer-manager": operators.trainer,
        "mpi-operator": operators.mpi,
        "kueue-manager": operators.kueue,
        "training-operator": "install" if operators.training_operator else "off",
    }
    return [*(image for image, mode in modes.items() if mode == "install"), "versitygw", *everywhere]


def _cluster_settings(stack: Stack, spec: LocalSpec, artifacts: Artifacts) -> ClusterSettings:
    state = os.environ.get("TRAINYARD_STATE") or "/var/lib/trainyard"
    return ClusterSettings(
        name=stack.name,
        kubernetes_version=spec.kubernetes_version,
        topology_labels=(names.LEAF_LABEL, names.HOSTNAME_LABEL),
        # Images are imported onto the nodes of the embedded cluster: no registry can change them.
        image_pull_policy="Never" if spec.cluster == "embedded" else "IfNotPresent",
        data_dir=spec.data_dir or f"{state}/{stack.name}/data",
        training_image=artifacts.training_image,
        training_env=str(artifacts.mounted_env()),
        dns=(f"{spec.network.node_cidr[1]}/32",) if spec.cluster == "embedded" else OTHERS_DNS,
    )


def _host_path(data_dir: str, path: str) -> dict[str, Any]:
    """Volume of a folder on the node. The kubelet creates the root; folders below it must exist already."""
    if not path:
        return {"hostPath": {"path": data_dir, "type": "DirectoryOrCreate"}}
    return {"hostPath": {"path": f"{data_dir}/{path}", "type": "Directory"}}


def _pool_settings(pool: NodePoolSpec) -> PoolSettings:
    simulated = {names.SIMULATED_LABEL: "true"} if pool.accelerator else {}
    return make_pool_settings(
        pool,
        labels={**pool_labels(pool), names.LEAF_LABEL: pool.name, **simulated},
        taints=pool_taints(pool),
        preemption_notice_seconds=catalog.usable_notice_seconds("local") if pool.is_spot else None,
        node_names=tuple(names.node(pool.name, index) for index in range(pool.num_nodes)),
    )


def _existing(kubeconfig: str, source: VolumeSource) -> _ControlPlane:
    """Describe a cluster that exists already and remains when the stack is destroyed."""
    cluster = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]
    ca_certificate = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
    outputs = ClusterOutputs(
        endpoint=pulumi.Output.from_input(cluster["server"]),
        ca_certificate=pulumi.Output.from_input(ca_certificate),
        kubeconfig=pulumi.Output.secret(kubeconfig),
        volume_source=source,
        # New on every run; the object store retains its first ones. The lengths are AWS's.
        object_store_keys=(
            pulumi.Output.secret(secrets.token_hex(10).upper()),
            pulumi.Output.secret(secrets.token_urlsafe(30)),
        ),
    )
    return _ControlPlane(outputs, None)


def _kind_kubeconfig(
    stack: Stack, spec: LocalSpec, settings: ClusterSettings, pools: Mapping[str, PoolSettings]
) -> str:
    """Write the kind configuration and read the context that `kind create cluster` makes from it."""
    text = kind_config.render(settings, spec.network, pools.values())
    file = LINKS / f"kind-{stack.name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return kubeconfig_without_credentials(
        f"kind-{stack.name}", fix=f"run `kind create cluster --config {file}`"
    )
