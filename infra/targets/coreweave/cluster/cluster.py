"""The CoreWeave target's component: VPC, CKS cluster with OIDC and audit log, node pools, bucket."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import pulumi
import pulumi_coreweave as coreweave
import yaml

from infra.common import names
from infra.common.artifacts import Artifacts
from infra.common.kubeconfig import kubeconfig_of
from infra.common.kubernetes_objects import KubernetesObject, claim_and_connect, connect
from infra.operator_settings.node_software import NodeSoftwareSettings, mirror_of
from infra.stackfile import Stack
from infra.stackfile.storage import LifecycleSpec
from infra.stackfile.target import TargetKind
from infra.targets.base import (
    INTERNET,
    Cluster,
    ClusterOutputs,
    ClusterSettings,
    Destination,
    ObjectStoreOutputs,
    PoolSettings,
    memory_lock,
)
from infra.targets.coreweave.cluster.bucket import make_bucket
from infra.targets.coreweave.cluster.pools import node_pool, pool_settings
from infra.targets.coreweave.stackfile.target import CoreweaveSpec, OidcSpec

SHARED_CLASS = "shared-vast"
"""CoreWeave's storage class of volumes that many nodes mount (Distributed File Storage)."""
INSIDE, OUTSIDE = "http://cwlota.com", "https://cwobject.com"
"""Endpoints of AI Object Storage: the cache on each node, and the object store itself."""
FABRIC_LEVELS = tuple(f"backend.coreweave.cloud/{level}" for level in ("fabric", "superpod", "leafgroup"))
"""Labels with a node's location in the InfiniBand network, the widest first."""
TOKEN = "COREWEAVE_API_TOKEN"  # noqa: S105 -- the variable's name
_PREFIXES = ("pods", "services", "load-balancers")
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # Metadata only: the log would otherwise contain the values of Secrets and tokens.
    "rules": [
        {
            "level": "Metadata",
            "resources": [
                {"group": "", "resources": ["secrets", "configmaps", "serviceaccounts/token"]},
                {"group": "authentication.k8s.io", "resources": ["tokenreviews"]},
            ],
        },
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "Request", "omitStages": ["RequestReceived"]},
    ],
}


class CoreweaveCluster(Cluster):
    """CKS in one zone, whose nodes have the GPU and InfiniBand drivers."""

    KIND: ClassVar[TargetKind] = "coreweave"

    def __init__(
        self, stack: Stack, artifacts: Artifacts, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(stack, artifacts, opts)
        spec = cast(CoreweaveSpec, stack.target)
        self.pools = {pool.name: pool_settings(pool) for pool in stack.pools}
        self.settings = _settings(stack, spec, self.pools)
        own = coreweave.Provider(stack.name, opts=pulumi.ResourceOptions(parent=self))
        options = pulumi.ResourceOptions(parent=self, provider=own)
        vpc = _vpc(stack.name, spec, options)
        cluster = _control_plane(stack.name, spec, vpc, options)
        kubeconfig = cluster.api_server_endpoint.apply(lambda endpoint: _kubeconfig(stack.name, endpoint))
        system = self._pools(stack, kubeconfig, cluster)
        self.access = claim_and_connect(stack.name, kubeconfig, cluster, self, system)
        bucket = stack.storage.object_store.bucket
        if not spec.existing_bucket:
            make_bucket(
                stack.name, bucket, spec, stack.storage.object_store.lifecycle or LifecycleSpec(), options
            )
        self.outputs = ClusterOutputs(
            endpoint=cluster.api_server_endpoint.apply(_url),
            ca_certificate=pulumi.Output.from_input(""),
            kubeconfig=kubeconfig,
            shared_class=SHARED_CLASS,
            object_store=ObjectStoreOutputs(INSIDE, bucket, spec.object_store_secret, OUTSIDE),
        )
        self.register_outputs({"endpoint": self.outputs.endpoint})

    def _pools(
        self, stack: Stack, kubeconfig: pulumi.Output[str], cluster: coreweave.CksCluster
    ) -> list[pulumi.Resource]:
        """Make the node pools, objects of the cluster; return those that all else runs on."""
        access = connect(f"{stack.name}-pools", kubeconfig, cluster, self)
        made: dict[str, pulumi.Resource] = {}
        for pool in stack.pools:
            # Sizes that the autoscaler set are not drift.
            ignored = ["spec.targetNodes"] if pool.provisioning else None
            scaled = pulumi.ResourceOptions(ignore_changes=ignored)
            options = pulumi.ResourceOptions.merge(access.options(self), scaled)
            made[pool.name] = KubernetesObject(node_pool(pool, self.pools[pool.name]), options)
        return [made[pool.name] for pool in stack.pools if pool.is_system]


def _settings(stack: Stack, spec: CoreweaveSpec, pools: Mapping[str, PoolSettings]) -> ClusterSettings:
    fabrics = {pool.fabric_class for pool in pools.values() if pool.accelerators_per_node}
    on_infiniband = bool(fabrics) and all(fabric.startswith("ib-coreweave") for fabric in fabrics)
    levels = FABRIC_LEVELS if on_infiniband else (names.ZONE_LABEL,)
    return ClusterSettings(
        name=stack.name,
        kubernetes_version=spec.rendered_version,
        topology_labels=(*levels, names.HOSTNAME_LABEL),
        data_dir="",
        training_image=spec.training_image,
        serves_object_store=False,
        device_plugins=memory_lock(pools.values()),
        software=NodeSoftwareSettings(mirror=mirror_of(spec.mirror)),
        # For http://cwlota.com and https://cwobject.com (CoreWeave: Configure endpoints). If LOTA has private
        # addresses, the stack file names them.
        destinations=(Destination(INTERNET, (80, 443)),),
    )


def _vpc(name: str, spec: CoreweaveSpec, options: pulumi.ResourceOptions) -> coreweave.NetworkingVpc:
    network = spec.network
    ranges = dict(zip(_PREFIXES, (network.pods, network.services, network.load_balancers), strict=True))
    return coreweave.NetworkingVpc(
        f"{name}-vpc",
        name=name,
        zone=spec.zone,
        vpc_prefixes=[
            coreweave.NetworkingVpcVpcPrefixArgs(name=each, value=str(cidr)) for each, cidr in ranges.items()
        ],
        # Nothing in the cluster serves the internet; nodes fetch images and packages from it.
        ingress=coreweave.NetworkingVpcIngressArgs(disable_public_services=True),
        egress=coreweave.NetworkingVpcEgressArgs(disable_public_access=False),
        opts=options,
    )


def _control_plane(
    name: str, spec: CoreweaveSpec, vpc: coreweave.NetworkingVpc, options: pulumi.ResourceOptions
) -> coreweave.CksCluster:
    pods, services, load_balancers = _PREFIXES
    protect = pulumi.ResourceOptions(protect=spec.deletion_protection)
    return coreweave.CksCluster(
        name,
        name=name,
        zone=spec.zone,
        vpc_id=vpc.id,
        # CoreWeave applies patch versions.
        version=f"v{spec.kubernetes_minor}",
        public=spec.public_endpoint,
        pod_cidr_name=pods,
        service_cidr_name=services,
        internal_lb_cidr_names=[load_balancers],
        audit_policy=base64.b64encode(json.dumps(_AUDIT_POLICY, sort_keys=True).encode()).decode(),
        oidc=_oidc(spec.oidc) if spec.oidc else None,
        opts=pulumi.ResourceOptions.merge(options, protect),
    )


def _oidc(spec: OidcSpec) -> coreweave.CksClusterOidcArgs:
    return coreweave.CksClusterOidcArgs(
        issuer_url=spec.issuer_url,
        client_id=spec.client_id,
        groups_claim=spec.groups_claim,
        admin_group_binding=spec.admin_group,
    )


def _url(endpoint: str) -> str:
    return endpoint if endpoint.startswith("https://") else f"https://{endpoint}"


def _kubeconfig(name: str, endpoint: str) -> str:
    """Return a kubeconfig that holds no token: its users have CoreWeave's token in the environment."""
    answer = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s"}}'
    )
    user: dict[str, Any] = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", f"printf '{answer}' \"${TOKEN}\""],
            "interactiveMode": "Never",
        }
    }
    # No CA certificate: a public authority issued the server's certificate.
    return yaml.safe_dump(kubeconfig_of(name, {"server": _url(endpoint)}, user), sort_keys=True)
