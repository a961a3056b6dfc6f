"""Policy: clusters, buckets, filesystems and vaults (backups, Azure keys) are protected from deletion."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal

KEY_VAULT = "azure-native:keyvault:Vault"


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Buckets: no `forceDestroy`; key vaults: purge protection; others: the cloud's setting or `protect`."""
    props = resource.props
    if resource.type.startswith(("aws:eks", "gcp:container")):
        if not resource.protect:
            default = resource.type.startswith("gcp:")
            yield from must_equal(props, "deletionProtection", True, default=default)
    elif resource.type == KEY_VAULT:
        yield from must_equal(props, "properties.enablePurgeProtection", True, default=False)
    elif "bucket" in resource.type.lower():
        yield from must_equal(props, "forceDestroy", False, default=False)
    elif not resource.protect:
        yield Violation("options.protect", "false", "true")


POLICY = Policy(
    name="security-deletion-protection",
    title="Clusters and data are protected from deletion",
    reason="The engine deletes a renamed resource; a rename must not delete months of checkpoints.",
    remedy="Turn deletion protection on, or set `protect` in the resource's options.",
    types=(
        "aws:eks/cluster:Cluster",
        "gcp:container/cluster:Cluster",
        "aws:s3/bucket:Bucket",
        "aws:s3/bucketV2:BucketV2",
        "gcp:storage/bucket:Bucket",
        "aws:backup/vault:Vault",
        "aws:efs/fileSystem:FileSystem",
        "aws:fsx/*FileSystem:*FileSystem",
        "gcp:filestore/instance:Instance",
        "gcp:lustre/instance:Instance",
        "azure-native:containerservice:ManagedCluster",
        "azure-native:netapp:CapacityPoolVolume",
        "azure-native:netapp:Volume",
        "azure-native:storage:StorageAccount",
        "azure-native:storagecache:AmlFilesystem",
        KEY_VAULT,
    ),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-9", "AWS Well-Architected REL09-BP01"),
)
