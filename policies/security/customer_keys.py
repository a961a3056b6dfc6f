"""Policy: disks, buckets, filesystems, backups and Kubernetes secrets are encrypted with a customer's key."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import independent, must_be_set, must_equal, must_have_key
from policies.unknowns import PropertyBlock

OS_DISK_KEY = "osDisk.managedDisk.diskEncryptionSet.id"
KEY_OF = {
    "aws:backup/vault:Vault": "kmsKeyArn",
    "aws:ebs/volume:Volume": "kmsKeyId",
    "aws:ec2/instance:Instance": "rootBlockDevice.kmsKeyId",
    "aws:efs/fileSystem:FileSystem": "kmsKeyId",
    "aws:eks/cluster:Cluster": "encryptionConfig.provider.keyArn",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "kmsKeyId",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "kmsKeyId",
    "gcp:compute/disk:Disk": "diskEncryptionKey.kmsKeySelfLink",
    "gcp:compute/instance:Instance": "bootDisk.kmsKeySelfLink",
    "gcp:container/cluster:Cluster": "databaseEncryption.keyName",
    "gcp:container/nodePool:NodePool": "nodeConfig.bootDiskKmsKey",
    "gcp:filestore/instance:Instance": "kmsKeyName",
    "gcp:lustre/instance:Instance": "kmsKey",
    "gcp:storage/bucket:Bucket": "encryption.defaultKmsKeyName",
    "azure-native:compute:Disk": "encryption.diskEncryptionSetId",
    "azure-native:compute:Snapshot": "encryption.diskEncryptionSetId",
    "azure-native:compute:VirtualMachine": f"storageProfile.{OS_DISK_KEY}",
    "azure-native:compute:VirtualMachineScaleSet": f"virtualMachineProfile.storageProfile.{OS_DISK_KEY}",
    "azure-native:containerservice:ManagedCluster": "diskEncryptionSetID",
    "azure-native:storagecache:AmlFilesystem": "encryptionSettings.keyEncryptionKey.keyUrl",
}
"""Type → property with the key."""
MUST_EQUAL = {
    "aws:efs/fileSystem:FileSystem": ("encrypted", True, False),
    "aws:rds/cluster:Cluster": ("storageEncrypted", True, False),
    "aws:rds/instance:Instance": ("storageEncrypted", True, False),
    "gcp:container/cluster:Cluster": ("databaseEncryption.state", "ENCRYPTED", None),
    # Its disks use the cluster's key; caches and local disks do only with this setting.
    "azure-native:containerservice:AgentPool": ("enableEncryptionAtHost", True, False),
    "azure-native:containerservice:ManagedCluster": ("securityProfile.azureKeyVaultKms.enabled", True, False),
    # The account has the key.
    "azure-native:netapp:CapacityPoolVolume": (
        "encryptionKeySource",
        "Microsoft.KeyVault",
        "Microsoft.NetApp",
    ),
    "azure-native:netapp:Volume": ("encryptionKeySource", "Microsoft.KeyVault", "Microsoft.NetApp"),
    "azure-native:storage:StorageAccount": (
        "encryption.keySource",
        "Microsoft.Keyvault",
        "Microsoft.Storage",
    ),
}
"""Type → property, its value, and the provider's default."""
KEY_OF_DRIVER = {
    "ebs.csi.aws.com": "kmsKeyId",
    "pd.csi.storage.gke.io": "disk-encryption-kms-key",
    "disk.csi.azure.com": "diskEncryptionSetID",
}
"""CSI driver of disks → storage class parameter with the disks' key."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The key and the switch of the type; disks of templates and instances, and rules of buckets, each."""
    props = resource.props
    if setting := MUST_EQUAL.get(resource.type):
        yield from must_equal(props, *setting)
    # The root disk may come from a launch template or a disk, which is evaluated by itself.
    if (path := KEY_OF.get(resource.type)) and not (
        props.has("launchTemplate") or props.has("bootDisk.source")
    ):
        yield from must_have_key(props, path)
    if resource.type.startswith("aws:eks/nodeGroup"):  # EKS's own template has a disk without a key
        yield from must_be_set(props, "launchTemplate", "a launch template, whose disks name their key")
    if resource.type.endswith(":StorageClass"):
        yield from _disks_on_demand(props)
    for disk in props.blocks("ebsBlockDevices"):
        yield from must_have_key(disk, "kmsKeyId")
    for mapping in props.blocks("blockDeviceMappings"):
        if mapping.has("ebs"):
            yield from must_equal(mapping, "ebs.encrypted", "true", default="false")
            yield from must_have_key(mapping, "ebs.kmsKeyId")
    if "ServerSideEncryption" in resource.type:
        for rule in props.blocks("rules"):
            yield from _of_rule(rule.block("applyServerSideEncryptionByDefault"))


@independent
def _disks_on_demand(storage_class: PropertyBlock) -> Iterator[Violation]:
    driver = storage_class.get("provisioner")
    parameters = storage_class.block("parameters")
    if driver == "ebs.csi.aws.com":
        yield from must_equal(parameters, "encrypted", "true", default="false")
    if parameter := KEY_OF_DRIVER.get(driver):
        yield from must_have_key(parameters, parameter)


@independent
def _of_rule(default: PropertyBlock) -> Iterator[Violation]:
    algorithm, allowed = default.get("sseAlgorithm", "nothing"), "aws:kms or aws:kms:dsse"
    if algorithm == "AES256":  # the only encryption that a target of access logs can have
        yield Violation(default.at("sseAlgorithm"), algorithm, f"{allowed}, except for logs", is_advice=True)
        return
    if algorithm not in ("aws:kms", "aws:kms:dsse"):
        yield Violation(default.at("sseAlgorithm"), algorithm, allowed)
    yield from must_have_key(default, "kmsMasterKeyId")


POLICY = Policy(
    name="security-customer-keys",
    title="Data at rest are encrypted with a customer-managed key",
    reason="Access to a disk or bucket alone does not decrypt it; revoking the key ends all access.",
    remedy="Name a customer-managed key; of a filesystem it cannot be changed in place.",
    types=(
        *dict.fromkeys((*KEY_OF, *MUST_EQUAL)),
        "aws:ec2/launchTemplate:LaunchTemplate",
        "aws:eks/nodeGroup:NodeGroup",
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
        "kubernetes:storage.k8s.io/v1:StorageClass",
    ),
    evaluate=evaluate,
    frameworks=(
        "AWS FSBP EC2.3", "AWS FSBP EFS.1", "AWS FSBP EKS.3", "AWS FSBP S3.17", "CIS EKS 5.3.1",
        "CIS GKE 5.3.1", "CIS GKE 5.9.1", "NIST SP 800-53 SC-28", "NIST SP 800-53 SC-12",
    ),
    formerly=(
        "security-bucket-keys", "security-cluster-secrets", "security-disk-keys", "security-filesystem-keys",
    ),
)  # fmt: skip
