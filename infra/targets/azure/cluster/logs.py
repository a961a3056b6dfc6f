"""Sends the AKS control plane's logs (audit, sign-ins, API server, controllers, scheduler) to a new or
existing Log Analytics workspace.
"""

from __future__ import annotations

import pulumi
from pulumi_azure_native.containerservice.managed_cluster import ManagedCluster
from pulumi_azure_native.monitor._inputs import LogSettingsArgs
from pulumi_azure_native.monitor.diagnostic_setting import DiagnosticSetting
from pulumi_azure_native.operationalinsights._inputs import WorkspaceFeaturesArgs, WorkspaceSkuArgs
from pulumi_azure_native.operationalinsights.workspace import Workspace

from infra.targets.azure.cluster.scope import Groups, Scope

LOGS = ("kube-audit-admin", "guard", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
"""Log categories: `kube-audit-admin` is the audit log without reads, which are most of it; `guard` records
sign-ins."""
RETENTION_DAYS = 90


def keep_logs(scope: Scope, groups: Groups, cluster: ManagedCluster) -> None:
    """Send the control plane's logs to a workspace that is retained when the stack is destroyed."""
    DiagnosticSetting(
        scope.named("logs"),
        name="audit",
        resource_uri=cluster.id,
        workspace_id=scope.spec.log_workspace or _workspace(scope, groups),
        log_analytics_destination_type="Dedicated",
        logs=[LogSettingsArgs(category=each, enabled=True) for each in LOGS],
        opts=scope.options(),
    )


def _workspace(scope: Scope, groups: Groups) -> pulumi.Output[str]:
    made = Workspace(
        scope.named("logs"),
        workspace_name=scope.named("logs"),
        resource_group_name=groups.data,
        location=scope.region,
        sku=WorkspaceSkuArgs(name="PerGB2018"),
        retention_in_days=RETENTION_DAYS,
        features=WorkspaceFeaturesArgs(disable_local_auth=True),
        tags=scope.tags,
        opts=scope.options(retain_on_delete=True),
    )
    return made.id
