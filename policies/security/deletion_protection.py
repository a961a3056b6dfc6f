"""Policy: clusters, buckets, filesystems and vaults (backups, Azure keys) are protected from deletion."""

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_avoid, must_equal

KEY_VAULT = "azure-native:keyvault:Vault"
CLUSTERS = ("aws:eks/cluster:Cluster", "gcp:container/cluster:Cluster")
BUCKETS = ("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2", "gcp:storage/bucket:Bucket")
DATABASE = re.compile("aws:(docdb|dynamodb|neptune|rds)/|gcp:(alloydb|bigtable|spanner|sql)/")
"""Types of databases, of which a protection that is turned off is refused."""
SWITCHES = ("deletionProtection", "deletionProtectionEnabled")
FSX = ("Lustre", "Ontap", "OpenZfs", "Windows")
PROTECTED = (
    "aws:backup/vault:Vault",
    "aws:efs/fileSystem:FileSystem",
    *(f"aws:fsx/{kind[0].lower()}{kind[1:]}FileSystem:{kind}FileSystem" for kind in FSX),
    "gcp:filestore/instance:Instance",
    "gcp:lustre/instance:Instance",
    "azure-native:containerservice:ManagedCluster",
    "azure-native:netapp:CapacityPoolVolume",
    "azure-native:netapp:Volume",
    "azure-native:storage:StorageAccount",
    "azure-native:storagecache:AmlFilesystem",
)
"""Types whose clouds have no such protection: only the engine's `protect` remains."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Buckets: no `forceDestroy`; key vaults: purge protection; others: the cloud's setting or `protect`."""
    props = resource.props
    if resource.type in CLUSTERS:
        if not resource.protect:
            default = resource.type.startswith("gcp:")
            yield from must_equal(props, "deletionProtection", True, default=default)
    elif resource.type == KEY_VAULT:
        yield from must_equal(props, "properties.enablePurgeProtection", True, default=False)
    elif resource.type in BUCKETS:
        yield from must_equal(props, "forceDestroy", False, default=False)
    elif resource.type in PROTECTED:
        if not resource.protect:
            yield Violation("options.protect", "false", "true")
    elif not resource.protect and DATABASE.match(resource.type):
        yield from must_avoid(props, dict.fromkeys(SWITCHES, ((False,), "true")))
        if props.get("skipFinalSnapshot") and not props.get("deletionProtection"):
            yield Violation("skipFinalSnapshot", "true", "false, or deletionProtection")


POLICY = Policy(
    name="security-deletion-protection",
    title="Clusters and data are protected from deletion",
    reason="The engine deletes a renamed resource; a rename must not delete months of checkpoints.",
    remedy="Turn deletion protection on, or set `protect` in the resource's options.",
    types=("aws:*", "gcp:*", "azure-native:*"),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-9", "AWS Well-Architected REL09-BP01"),
)
