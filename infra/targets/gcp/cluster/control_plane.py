"""Declares the GKE control plane or uses an existing one, and makes its kubeconfig."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi_gcp.container._inputs import (
    ClusterAddonsConfigArgs,
    ClusterAddonsConfigGcePersistentDiskCsiDriverConfigArgs,
    ClusterAddonsConfigGcsFuseCsiDriverConfigArgs,
    ClusterAddonsConfigLustreCsiDriverConfigArgs,
    ClusterAuthenticatorGroupsConfigArgs,
    ClusterControlPlaneEndpointsConfigArgs,
    ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs,
    ClusterDatabaseEncryptionArgs,
    ClusterIpAllocationPolicyArgs,
    ClusterLoggingConfigArgs,
    ClusterMaintenancePolicyArgs,
    ClusterMaintenancePolicyMaintenanceExclusionArgs,
    ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgs,
    ClusterMaintenancePolicyRecurringWindowArgs,
    ClusterMasterAuthorizedNetworksConfigArgs,
    ClusterMonitoringConfigArgs,
    ClusterMonitoringConfigManagedPrometheusArgs,
    ClusterNodeConfigArgs,
    ClusterPrivateClusterConfigArgs,
    ClusterReleaseChannelArgs,
    ClusterWorkloadIdentityConfigArgs,
)
from pulumi_gcp.container.cluster import Cluster

from infra.common.kubeconfig import kubeconfig_of
from infra.targets.gcp.cluster.keys import Keys
from infra.targets.gcp.cluster.network import Network
from infra.targets.gcp.cluster.scope import Scope
from infra.targets.gcp.stackfile.target import ExistingGkeSpec, GcpAccessSpec

LOGS = ("SYSTEM_COMPONENTS", "WORKLOADS", "APISERVER", "SCHEDULER", "CONTROLLER_MANAGER")
METRICS = ("SYSTEM_COMPONENTS", "DCGM")
"""Components whose metrics GKE collects; DCGM's are those of NVIDIA's GPUs."""
_CHANNELS = {"regular": "REGULAR", "stable": "STABLE", "extended": "EXTENDED", "none": "UNSPECIFIED"}
_SINCE = "2026-01-01T00:00:00Z"
_WINDOW = ("2026-01-03T06:00:00Z", "2026-01-03T12:00:00Z", "FREQ=WEEKLY;BYDAY=SA,SU")


@dataclass(frozen=True)
class ControlPlane:
    """The cluster, and what may be done once the access entries exist."""

    cluster: Cluster | None
    """Cluster that the stack makes; None for an existing one, which the engine must not change or delete."""
    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    """URL of the API server: the DNS name, for which IAM authorizes each connection, or the address."""
    ca_certificate: pulumi.Output[str]
    """CA certificate of the cluster in PEM; the DNS name has a publicly trusted certificate."""
    access: Sequence[pulumi.CustomResource]


def make_control_plane(
    scope: Scope,
    network: Network,
    keys: Keys,
    node_identity: pulumi.Input[str],
    access: Sequence[pulumi.CustomResource],
    *,
    has_multi_networking: bool,
) -> ControlPlane:
    """Make the cluster: private, secrets encrypted, audit logs retained."""
    spec = scope.spec
    cluster = Cluster(
        scope.name,
        # A fixed name, since users' kubeconfigs contain it.
        name=scope.name,
        location=scope.region,
        node_locations=list(spec.zones),
        project=scope.project,
        min_master_version=scope.kubernetes_version,
        release_channel=ClusterReleaseChannelArgs(channel=_CHANNELS[spec.release_channel]),
        maintenance_policy=_maintenance(),
        # Pools are separate resources: the default pool that GKE requires is deleted at once.
        remove_default_node_pool=True,
        initial_node_count=1,
        node_config=_first_node(scope, keys, node_identity),
        network=network.id,
        subnetwork=network.subnetwork,
        networking_mode="VPC_NATIVE",
        ip_allocation_policy=ClusterIpAllocationPolicyArgs(
            cluster_secondary_range_name=network.pods_range,
            services_secondary_range_name=network.services_range,
        ),
        datapath_provider="ADVANCED_DATAPATH",
        enable_multi_networking=has_multi_networking,
        private_cluster_config=ClusterPrivateClusterConfigArgs(
            enable_private_nodes=True, enable_private_endpoint=True
        ),
        # With an empty list, the private endpoint accepts connections only from the VPC.
        master_authorized_networks_config=ClusterMasterAuthorizedNetworksConfigArgs(),
        control_plane_endpoints_config=_dns_endpoint(spec.access),
        authenticator_groups_config=_groups(spec.access),
        workload_identity_config=ClusterWorkloadIdentityConfigArgs(workload_pool=scope.workload_pool),
        database_encryption=ClusterDatabaseEncryptionArgs(state="ENCRYPTED", key_name=keys.cluster),
        enable_shielded_nodes=True,
        addons_config=_addons(scope),
        logging_config=ClusterLoggingConfigArgs(enable_components=list(LOGS)),
        monitoring_config=_monitoring(),
        deletion_protection=spec.deletion_protection,
        resource_labels=scope.labels,
        # GKE reports the first pool's nodes in `nodeConfig`. It refuses only when the cluster is deleted;
        # with `protect` the preview already fails.
        opts=scope.options(ignore_changes=["nodeConfig"], protect=spec.deletion_protection),
    )
    return _control_plane(cluster, access, uses_dns_endpoint=spec.access.dns_endpoint)


def _control_plane(
    cluster: Cluster, access: Sequence[pulumi.CustomResource], *, uses_dns_endpoint: bool
) -> ControlPlane:
    """Return the properties of the cluster that other modules need."""
    return ControlPlane(
        cluster,
        cluster.name,
        _endpoint(cluster, uses_dns_endpoint=uses_dns_endpoint),
        cluster.master_auth.apply(lambda found: base64.b64decode(found.cluster_ca_certificate).decode()),
        access,
    )


def _endpoint(cluster: Cluster, *, uses_dns_endpoint: bool) -> pulumi.Output[str]:
    """Return the URL. The DNS name takes no calls of users where traffic from outside is not allowed.

    (Container API: `ControlPlaneEndpointsConfig.DNSEndpointConfig.allowExternalTraffic`.)
    """
    if not uses_dns_endpoint:
        return cluster.private_cluster_config.apply(lambda found: f"https://{found.private_endpoint}")
    return cluster.control_plane_endpoints_config.apply(
        lambda found: f"https://{found.dns_endpoint_config.endpoint}"
    )


def _dns_endpoint(access: GcpAccessSpec) -> ClusterControlPlaneEndpointsConfigArgs:
    return ClusterControlPlaneEndpointsConfigArgs(
        dns_endpoint_config=ClusterControlPlaneEndpointsConfigDnsEndpointConfigArgs(
            allow_external_traffic=access.dns_endpoint
        )
    )


def _monitoring() -> ClusterMonitoringConfigArgs:
    return ClusterMonitoringConfigArgs(
        enable_components=list(METRICS),
        managed_prometheus=ClusterMonitoringConfigManagedPrometheusArgs(enabled=True),
    )


def use_control_plane(spec: ExistingGkeSpec, access: Sequence[pulumi.CustomResource]) -> ControlPlane:
    """Use the cluster that the stack names."""
    authority = base64.b64decode(spec.certificate_authority or "").decode()
    name, endpoint, certificate = map(pulumi.Output.from_input, (spec.name, spec.endpoint, authority))
    return ControlPlane(None, name, endpoint, certificate, access)


def _groups(access: GcpAccessSpec) -> ClusterAuthenticatorGroupsConfigArgs | None:
    """Google Groups as groups of Kubernetes: members of the group that Workspace exposes to GKE."""
    if access.security_group is None:
        return None
    return ClusterAuthenticatorGroupsConfigArgs(security_group=access.security_group)


def _maintenance() -> ClusterMaintenancePolicyArgs:
    """Patches of the control plane at week-ends; nodes and minor versions when the owner requests it."""
    start, end, recurrence = _WINDOW
    options = ClusterMaintenancePolicyMaintenanceExclusionExclusionOptionsArgs(
        scope="NO_MINOR_OR_NODE_UPGRADES", end_time_behavior="UNTIL_END_OF_SUPPORT"
    )
    return ClusterMaintenancePolicyArgs(
        recurring_window=ClusterMaintenancePolicyRecurringWindowArgs(
            start_time=start, end_time=end, recurrence=recurrence
        ),
        maintenance_exclusions=[
            ClusterMaintenancePolicyMaintenanceExclusionArgs(
                exclusion_name="jobs-are-not-interrupted", start_time=_SINCE, exclusion_options=options
            )
        ],
    )


def _first_node(scope: Scope, keys: Keys, identity: pulumi.Input[str]) -> ClusterNodeConfigArgs:
    """The initial node, deleted at once: an organisation's rules on keys and identities hold for it, too."""
    return ClusterNodeConfigArgs(
        machine_type="e2-standard-4",
        service_account=identity,
        boot_disk_kms_key=keys.data,
        resource_labels=scope.labels,
    )


def _addons(scope: Scope) -> ClusterAddonsConfigArgs:
    lustre = ClusterAddonsConfigLustreCsiDriverConfigArgs(enabled=True)
    return ClusterAddonsConfigArgs(
        gce_persistent_disk_csi_driver_config=ClusterAddonsConfigGcePersistentDiskCsiDriverConfigArgs(
            enabled=True
        ),
        gcs_fuse_csi_driver_config=ClusterAddonsConfigGcsFuseCsiDriverConfigArgs(enabled=True),
        lustre_csi_driver_config=lustre if scope.spec.filesystem.kind == "lustre" else None,
    )


def kubeconfig(scope: Scope, control_plane: ControlPlane) -> pulumi.Output[str]:
    """Return a kubeconfig that holds no token: gke-gcloud-auth-plugin gets one. Secret nevertheless."""
    existing = scope.spec.existing_cluster
    # Not usable before its reader has access, which in an existing cluster they have.
    dependencies = [] if existing else [grant.id for grant in control_plane.access]
    parts = pulumi.Output.all(control_plane.endpoint, control_plane.ca_certificate, *dependencies)
    by_address = bool(existing.certificate_authority) if existing else not scope.spec.access.dns_endpoint
    return pulumi.Output.secret(
        parts.apply(
            lambda known: json.dumps(_kubeconfig(scope, str(known[0]), str(known[1]) if by_address else ""))
        )
    )


def _kubeconfig(scope: Scope, endpoint: str, authority: str) -> dict[str, Any]:
    """`authority` (PEM) is that of an address; the DNS name's is known to all clients."""
    encoded = base64.b64encode(authority.encode()).decode()
    cluster = {"server": endpoint, **({"certificate-authority-data": encoded} if authority else {})}
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "gke-gcloud-auth-plugin",
        "installHint": "gcloud components install gke-gcloud-auth-plugin",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    return kubeconfig_of(scope.name, cluster, {"exec": exec_})
