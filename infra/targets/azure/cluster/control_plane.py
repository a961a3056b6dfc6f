"""Declares the AKS control plane with its system pool, and makes its kubeconfig."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

import pulumi
import yaml
from pulumi_azure_native.containerservice._inputs import (
    AzureKeyVaultKmsArgs,
    ContainerServiceNetworkProfileArgs,
    MaintenanceWindowArgs,
    ManagedClusterAADProfileArgs,
    ManagedClusterAgentPoolProfileArgs,
    ManagedClusterAPIServerAccessProfileArgs,
    ManagedClusterAutoUpgradeProfileArgs,
    ManagedClusterIdentityArgs,
    ManagedClusterOIDCIssuerProfileArgs,
    ManagedClusterSecurityProfileArgs,
    ManagedClusterSecurityProfileImageCleanerArgs,
    ManagedClusterSecurityProfileWorkloadIdentityArgs,
    ManagedClusterSKUArgs,
    ManagedClusterStorageProfileArgs,
    ManagedClusterStorageProfileBlobCSIDriverArgs,
    ManagedClusterStorageProfileDiskCSIDriverArgs,
    ManagedClusterStorageProfileFileCSIDriverArgs,
    ScheduleArgs,
    UserAssignedIdentityArgs,
    WeeklyScheduleArgs,
)
from pulumi_azure_native.containerservice.list_managed_cluster_user_credentials import (
    list_managed_cluster_user_credentials_output,
)
from pulumi_azure_native.containerservice.maintenance_configuration import MaintenanceConfiguration
from pulumi_azure_native.containerservice.managed_cluster import ManagedCluster

from infra.common.kubeconfig import kubeconfig_of
from infra.targets.azure.cluster.dependencies import ClusterDeps
from infra.targets.azure.cluster.identity import Identities
from infra.targets.azure.cluster.keys import Keys
from infra.targets.azure.cluster.network import Network
from infra.targets.azure.cluster.scope import Groups, Scope
from infra.targets.azure.stackfile.target import AzureSpec

AKS_SERVER = "6dae42f8-4368-4678-94ff-3960e28e3630"
"""Application ID of AKS in Entra, the same in every tenant (AKS: kubelogin)."""
_WINDOW_HOURS = 6
_SCHEDULES = ("aksManagedAutoUpgradeSchedule", "aksManagedNodeOSUpgradeSchedule")


@dataclass(frozen=True)
class ControlPlane:
    """The cluster, with endpoint and credentials."""

    cluster: ManagedCluster
    credentials: pulumi.Output[dict[str, Any]]
    """Kubeconfig that Azure returns to authorized users: contains no token."""

    @property
    def endpoint(self) -> pulumi.Output[str]:
        """URL of the API server."""
        return self.credentials.apply(lambda config: str(_cluster(config)["server"]))

    @property
    def ca_certificate(self) -> pulumi.Output[str]:
        """PEM of the cluster's authority."""
        return self.credentials.apply(
            lambda config: base64.b64decode(_cluster(config)["certificate-authority-data"]).decode()
        )

    @property
    def issuer(self) -> pulumi.Output[str]:
        """Issuer of the service accounts' tokens."""
        return self.cluster.oidc_issuer_profile.apply(lambda found: str(found.issuer_url if found else ""))


def make_control_plane(
    scope: Scope, deps: ClusterDeps, system_pool: ManagedClusterAgentPoolProfileArgs
) -> ControlPlane:
    """Make the cluster: private, without local accounts, its secrets encrypted."""
    spec, identities = scope.spec, deps.identities
    cluster = ManagedCluster(
        scope.name,
        # A fixed name, since users' kubeconfigs contain it.
        resource_name_=scope.name,
        resource_group_name=deps.groups.cluster,
        location=scope.region,
        kubernetes_version=scope.kubernetes_version,
        dns_prefix=scope.name,
        node_resource_group=scope.named("nodes"),
        sku=ManagedClusterSKUArgs(name="Base", tier="Standard"),
        identity=ManagedClusterIdentityArgs(
            type="UserAssigned", user_assigned_identities=[identities.control_plane.id]
        ),
        identity_profile=_node_identity(identities),
        enable_rbac=True,
        disable_local_accounts=True,
        aad_profile=_sign_in(spec),
        api_server_access_profile=_access(scope, deps.network),
        network_profile=_network(scope),
        oidc_issuer_profile=ManagedClusterOIDCIssuerProfileArgs(enabled=True),
        security_profile=_security(deps.keys),
        disk_encryption_set_id=deps.disks,
        storage_profile=_drivers(scope),
        auto_upgrade_profile=ManagedClusterAutoUpgradeProfileArgs(
            upgrade_channel=spec.upgrades, node_os_upgrade_channel=_NODE_IMAGES[spec.upgrades]
        ),
        agent_pool_profiles=[system_pool],
        tags=scope.tags,
        opts=scope.options(depends_on=[deps.keys.private, *deps.rights], protect=spec.deletion_protection),
    )
    for name in _SCHEDULES if spec.upgrades != "none" else ():
        _window(scope, deps.groups, cluster, name)
    return ControlPlane(cluster, _credentials(deps.groups, cluster))


def _node_identity(identities: Identities) -> dict[str, UserAssignedIdentityArgs]:
    nodes = identities.nodes
    return {
        "kubeletidentity": UserAssignedIdentityArgs(
            resource_id=nodes.id, client_id=nodes.client_id, object_id=nodes.principal_id
        )
    }


def _sign_in(spec: AzureSpec) -> ManagedClusterAADProfileArgs:
    """Users and their roles are Entra's."""
    return ManagedClusterAADProfileArgs(
        managed=True,
        enable_azure_rbac=True,
        tenant_id=spec.tenant,
        admin_group_object_ids=list(spec.access.admins),
    )


def _security(keys: Keys) -> ManagedClusterSecurityProfileArgs:
    return ManagedClusterSecurityProfileArgs(
        workload_identity=ManagedClusterSecurityProfileWorkloadIdentityArgs(enabled=True),
        azure_key_vault_kms=AzureKeyVaultKmsArgs(
            enabled=True,
            key_id=keys.cluster.url,
            key_vault_network_access="Private",
            key_vault_resource_id=keys.vault,
        ),
        # Images that no pod has used for a week.
        image_cleaner=ManagedClusterSecurityProfileImageCleanerArgs(enabled=True, interval_hours=168),
    )


_NODE_IMAGES = {"none": "None", "patch": "NodeImage"}


def _access(scope: Scope, network: Network) -> ManagedClusterAPIServerAccessProfileArgs:
    """The API server has an address in the VNet; the key vault is reached from there, too."""
    networks = scope.spec.access.public_cidrs
    return ManagedClusterAPIServerAccessProfileArgs(
        enable_vnet_integration=True,
        subnet_id=network.api_server,
        enable_private_cluster=not networks,
        enable_private_cluster_public_fqdn=None if networks else False,
        private_dns_zone=None if networks else "system",
        authorized_ip_ranges=[str(each) for each in networks] or None,
        # `az aks command invoke` would bypass the restrictions of the network.
        disable_run_command=True,
    )


def _network(scope: Scope) -> ContainerServiceNetworkProfileArgs:
    network = scope.spec.network
    outbound = {"nat": "userAssignedNATGateway", "routes": "userDefinedRouting"}
    return ContainerServiceNetworkProfileArgs(
        network_plugin="azure",
        network_plugin_mode="overlay",
        network_dataplane="cilium",
        network_policy="cilium",
        pod_cidr=str(network.pods),
        service_cidr=str(network.services),
        dns_service_ip=str(network.services.network_address + 10),
        outbound_type=outbound[network.outbound],
        load_balancer_sku="standard",
    )


def _drivers(scope: Scope) -> ManagedClusterStorageProfileArgs:
    """Disks; Blob storage where it is the filesystem. Azure Files needs account keys, which are disabled."""
    return ManagedClusterStorageProfileArgs(
        disk_csi_driver=ManagedClusterStorageProfileDiskCSIDriverArgs(enabled=True),
        file_csi_driver=ManagedClusterStorageProfileFileCSIDriverArgs(enabled=False),
        blob_csi_driver=ManagedClusterStorageProfileBlobCSIDriverArgs(
            enabled=scope.spec.filesystem.kind == "blob-nfs"
        ),
    )


def _window(scope: Scope, groups: Groups, cluster: ManagedCluster, name: str) -> None:
    MaintenanceConfiguration(
        scope.named(name),
        config_name=name,
        resource_group_name=groups.cluster,
        resource_name_=cluster.name,
        maintenance_window=MaintenanceWindowArgs(
            schedule=ScheduleArgs(weekly=WeeklyScheduleArgs(day_of_week="Saturday", interval_weeks=1)),
            start_time="06:00",
            duration_hours=_WINDOW_HOURS,
            utc_offset="+00:00",
        ),
        opts=scope.options(),
    )


def _credentials(groups: Groups, cluster: ManagedCluster) -> pulumi.Output[dict[str, Any]]:
    """Request the kubeconfig, since no property of the cluster has its certificate; known only after `up`."""
    found = list_managed_cluster_user_credentials_output(
        resource_group_name=groups.cluster,
        resource_name=cluster.name,
        opts=pulumi.InvokeOutputOptions(parent=cluster, depends_on=[cluster]),
    )
    return found.apply(lambda answer: _read(answer.kubeconfigs[0].value))


def _read(value: str) -> dict[str, Any]:
    config: dict[str, Any] = yaml.safe_load(base64.b64decode(value))
    return config


def _cluster(config: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = config["clusters"][0]["cluster"]
    return found


def kubeconfig(scope: Scope, control_plane: ControlPlane) -> pulumi.Output[str]:
    """Return a kubeconfig that holds no token: calls ask kubelogin for one. Secret nevertheless."""
    made = control_plane.credentials.apply(lambda config: json.dumps(_kubeconfig(scope, _cluster(config))))
    return pulumi.Output.secret(made)


def _kubeconfig(scope: Scope, cluster: dict[str, str]) -> dict[str, Any]:
    server = ["--server-id", AKS_SERVER, "--tenant-id", scope.spec.tenant]
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "kubelogin",
        # Uses the login of `az`: a user, a pipeline's identity or a managed identity.
        "args": ["get-token", "--login", "azurecli", *server],
        "installHint": "az aks install-cli",
        "interactiveMode": "Never",
        "provideClusterInfo": False,
    }
    known = {key: cluster[key] for key in ("server", "certificate-authority-data")}
    return kubeconfig_of(scope.name, known, {"exec": exec_})
