"""Validates names, labels and tags against the limits of the clouds' APIs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rehearsal.wire import has_unknown


@dataclass(frozen=True)
class Limit:
    """Limit of a cloud on a name: length and characters."""

    field: str
    """Property with the name."""
    longest: int
    pattern: str = r"[a-zA-Z0-9-]+"

    def takes(self, name: str) -> bool:
        """Whether the cloud takes a name."""
        return len(name) <= self.longest and re.fullmatch(self.pattern, name) is not None


LIMITS: Mapping[str, Limit] = {
    # AWS Backup API reference, CreateBackupVault, BackupPlanInput, BackupSelection.
    "aws:backup/vault:Vault": Limit("name", 50, r"[a-zA-Z0-9_-]{2,}"),
    "aws:backup/plan:Plan": Limit("name", 50, r"[a-zA-Z0-9_.-]+"),
    "aws:backup/selection:Selection": Limit("name", 50, r"[a-zA-Z0-9_.-]+"),
    # EventBridge API reference, PutRule; CloudWatch Logs API reference, CreateLogGroup, PutMetricFilter.
    "aws:cloudwatch/eventRule:EventRule": Limit("name", 64, r"[\w.-]+"),
    "aws:cloudwatch/logGroup:LogGroup": Limit("name", 512, r"[\w./#-]+"),
    "aws:cloudwatch/logMetricFilter:LogMetricFilter": Limit("name", 512, r"[^:*]+"),
    # Auto Scaling API reference, PutScheduledUpdateGroupAction.
    "aws:autoscaling/schedule:Schedule": Limit("scheduledActionName", 255),
    # EC2 API reference, CreateLaunchTemplate, CreatePlacementGroup, CreateSecurityGroup.
    "aws:ec2/launchTemplate:LaunchTemplate": Limit("name", 128, r"[a-zA-Z0-9().\-/_]{3,}"),
    "aws:ec2/placementGroup:PlacementGroup": Limit("name", 255),
    "aws:ec2/securityGroup:SecurityGroup": Limit("name", 255),
    # EFS API reference, CreateFileSystem (the bridge generates the token).
    "aws:efs/fileSystem:FileSystem": Limit("creationToken", 64),
    # EKS API reference, CreateCluster; terraform-provider-aws, eks/node_group.go (at most 63).
    "aws:eks/cluster:Cluster": Limit("name", 100),
    "aws:eks/nodeGroup:NodeGroup": Limit("nodeGroupName", 63),
    # IAM API reference, CreateRole, PutRolePolicy.
    "aws:iam/role:Role": Limit("name", 64, r"[\w+=,.@-]+"),
    "aws:iam/rolePolicy:RolePolicy": Limit("name", 128, r"[\w+=,.@-]+"),
    # KMS API reference, CreateAlias; S3 user guide, bucket naming rules; SQS API reference, CreateQueue.
    "aws:kms/alias:Alias": Limit("name", 256, r"alias/[a-zA-Z0-9/_-]+"),
    "aws:s3/bucket:Bucket": Limit("bucket", 63, r"[a-z0-9.-]{3,}"),
    "aws:sqs/queue:Queue": Limit("name", 80, r"[\w-]+"),
    # Compute Engine, naming resources (RFC 1035).
    "gcp:compute/firewall:Firewall": Limit("name", 63, r"[a-z][a-z0-9-]*"),
    "gcp:compute/globalAddress:GlobalAddress": Limit("name", 63, r"[a-z][a-z0-9-]*"),
    "gcp:compute/network:Network": Limit("name", 63, r"[a-z][a-z0-9-]*"),
    "gcp:compute/resourcePolicy:ResourcePolicy": Limit("name", 63, r"[a-z][a-z0-9-]*"),
    "gcp:compute/router:Router": Limit("name", 63, r"[a-z][a-z0-9-]*"),
    "gcp:compute/routerNat:RouterNat": Limit("name", 63, r"[a-z][a-z0-9-]*"),
    "gcp:compute/subnetwork:Subnetwork": Limit("name", 63, r"[a-z][a-z0-9-]*"),
    # GKE API, Cluster.name, NodePool.name.
    "gcp:container/cluster:Cluster": Limit("name", 40, r"[a-z][a-z0-9-]*"),
    "gcp:container/nodePool:NodePool": Limit("name", 40, r"[a-z][a-z0-9-]*"),
    # Filestore and Managed Lustre API, CreateInstance.
    "gcp:filestore/instance:Instance": Limit("name", 63, r"[a-z][a-z0-9-]*"),
    "gcp:lustre/instance:Instance": Limit("instanceId", 63, r"[a-z][a-z0-9-]*"),
    # Cloud KMS API, KeyRings.create, CryptoKeys.create; IAM API, ServiceAccounts.create.
    "gcp:kms/cryptoKey:CryptoKey": Limit("name", 63, r"[a-zA-Z0-9_-]+"),
    "gcp:kms/keyRing:KeyRing": Limit("name", 63, r"[a-zA-Z0-9_-]+"),
    "gcp:serviceaccount/account:Account": Limit("accountId", 30, r"[a-z][a-z0-9-]{5,}"),
    "gcp:privilegedaccessmanager/entitlement:Entitlement": Limit("entitlementId", 63, r"[a-z][a-z0-9-]{3,}"),
    # Cloud Storage, bucket naming guidelines, about folders.
    "gcp:storage/bucket:Bucket": Limit("name", 63, r"[a-z0-9._-]{3,}"),
    "gcp:storage/folder:Folder": Limit("name", 512, r"[a-z0-9/-]+/"),
    "gcp:storage/managedFolder:ManagedFolder": Limit("name", 512, r"[a-z0-9/-]+/"),
    # Azure, naming rules and restrictions for Azure resources.
    "azure-native:compute:DiskEncryptionSet": Limit("diskEncryptionSetName", 80),
    "azure-native:containerservice:AgentPool": Limit("agentPoolName", 12, r"[a-z][a-z0-9]*"),
    "azure-native:containerservice:ManagedCluster": Limit("resourceName", 63),
    "azure-native:keyvault:Key": Limit("keyName", 127),
    "azure-native:keyvault:Vault": Limit("vaultName", 24, r"[a-z][a-z0-9-]{2,}"),
    "azure-native:managedidentity:FederatedIdentityCredential": Limit(
        "federatedIdentityCredentialResourceName", 120, r"[a-z0-9_-]{3,}"
    ),
    "azure-native:managedidentity:UserAssignedIdentity": Limit("resourceName", 128, r"[a-zA-Z0-9_-]{3,}"),
    "azure-native:monitor:DiagnosticSetting": Limit("name", 260),
    "azure-native:netapp:Account": Limit("accountName", 128),
    "azure-native:netapp:CapacityPool": Limit("poolName", 64),
    "azure-native:netapp:CapacityPoolVolume": Limit("volumeName", 64),
    "azure-native:netapp:SnapshotPolicy": Limit("snapshotPolicyName", 64),
    "azure-native:network:NatGateway": Limit("natGatewayName", 80),
    "azure-native:network:PrivateDnsZoneGroup": Limit("privateDnsZoneGroupName", 80),
    "azure-native:network:PrivateEndpoint": Limit("privateEndpointName", 64),
    "azure-native:network:PublicIPAddress": Limit("publicIpAddressName", 80),
    "azure-native:network:Subnet": Limit("subnetName", 80),
    "azure-native:network:VirtualNetwork": Limit("virtualNetworkName", 64),
    "azure-native:operationalinsights:Workspace": Limit("workspaceName", 63, r"[a-zA-Z0-9-]{4,}"),
    "azure-native:privatedns:PrivateZone": Limit("privateZoneName", 63, r"[a-z0-9.-]+"),
    "azure-native:privatedns:VirtualNetworkLink": Limit("virtualNetworkLinkName", 80),
    "azure-native:resources:ResourceGroup": Limit("resourceGroupName", 90),
    "azure-native:storage:BlobContainer": Limit("containerName", 63, r"[a-z0-9-]{3,}"),
    "azure-native:storage:StorageAccount": Limit("accountName", 24, r"[a-z0-9]{3,}"),
    "azure-native:storagecache:AmlFilesystem": Limit("amlFilesystemName", 80, r"[a-zA-Z0-9_-]{2,}"),
    # CoreWeave, CKS cluster and VPC reference.
    "coreweave:index/cksCluster:CksCluster": Limit("name", 30, r"[a-z0-9-]+"),
    "coreweave:index/networkingVpc:NetworkingVpc": Limit("name", 30, r"[a-z0-9-]+"),
    "coreweave:index/objectStorageBucket:ObjectStorageBucket": Limit("name", 63, r"[a-z0-9.-]{3,}"),
}
"""Type → limit of its name; comments name the sources."""
MORE_LIMITS: Mapping[str, tuple[Limit, ...]] = {
    # AKS: DNS prefix and node resource group (naming rules; az aks create).
    "azure-native:containerservice:ManagedCluster": (
        Limit("dnsPrefix", 54),
        Limit("nodeResourceGroup", 80),
    ),
    # Azure NetApp Files, requirements for creating a volume path.
    "azure-native:netapp:CapacityPoolVolume": (Limit("creationToken", 80),),
}


@dataclass(frozen=True)
class Tagging:
    """Limits of a cloud on a resource's tags or labels: number and patterns."""

    field: str
    most: int
    key: str
    value: str
    """Pattern that a whole value must match; `key` is the pattern of a whole key."""


TAGGING: Mapping[str, Tagging] = {
    # Resource Manager, requirements for labels.
    "gcp": Tagging("labels", 64, r"[a-z][a-z0-9_-]{0,62}", r"[a-z0-9_-]{0,63}"),
    # Azure Resource Manager, tag resources: limitations.
    "azure-native": Tagging("tags", 50, r"[^<>%&\\?/]{1,512}", r".{0,256}"),
}
"""Package → limits of its tags. Kubernetes validates labels of CoreWeave's node pools, and AWS's fake AWS
tags."""


def problems(token: str, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find the names and tags that a cloud would refuse; unknown values are accepted."""
    for limit in (*filter(None, [LIMITS.get(token)]), *MORE_LIMITS.get(token, ())):
        name = inputs.get(limit.field)
        if isinstance(name, str) and not has_unknown(name) and not limit.takes(name):
            yield (
                limit.field,
                f"got {name!r}; {limit.pattern}, at most {limit.longest} characters, is allowed",
            )
    tagging = TAGGING.get(token.partition(":")[0])
    if tagging is not None:
        yield from _tag_problems(tagging, inputs.get(tagging.field))


def _tag_problems(tagging: Tagging, tags: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(tags, Mapping):
        return
    if len(tags) > tagging.most:
        yield tagging.field, f"got {len(tags)}; at most {tagging.most} are allowed"
    for key, value in tags.items():
        for text, pattern in ((str(key), tagging.key), (str(value), tagging.value)):
            if not has_unknown(value) and not re.fullmatch(pattern, text):
                yield tagging.field, f"got {text!r}; {pattern} is allowed"
