"""Sends the AKS control plane's logs (audit, sign-ins, API server, controllers, scheduler) to a new or
existing Log Analytics workspace.
"""

from __future__ import annotations

from pulumi_azure_native.containerservice.managed_cluster import ManagedCluster
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
    made = [] if scope.spec.log_workspace else [_workspace(scope, groups)]
    DiagnosticSetting(
        scope.named("logs"),
        name="audit",
        resource_uri=cluster.id,
        workspace_id=scope.spec.log_workspace or _workspace_id(scope),
        log_analytics_destination_type="Dedicated",
        logs=[{"category": each, "enabled": True} for each in LOGS],
        opts=scope.options(depends_on=made),
    )


def _workspace_id(scope: Scope) -> str:
    """Return the ID that the workspace will have: policies on destinations see it before it exists."""
    group = scope.named("cluster" if scope.spec.storage_group else "data")
    provider = "Microsoft.OperationalInsights/workspaces"
    of_group = f"/subscriptions/{scope.spec.subscription}/resourceGroups/{group}"
    return f"{of_group}/providers/{provider}/{scope.named('logs')}"


def _workspace(scope: Scope, groups: Groups) -> Workspace:
    return Workspace(
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
