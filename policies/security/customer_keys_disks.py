"""Policy: disks and storage classes for disks use a customer-managed key, and AKS node pools encrypt their
disks at the host.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_be_set, must_equal, must_have_key
from policies.unknowns import PropertyBlock

OS_DISK_KEY = "osDisk.managedDisk.diskEncryptionSet.id"
KEY_OF = {
    "aws:ebs/volume:Volume": "kmsKeyId",
    "aws:ec2/instance:Instance": "rootBlockDevice.kmsKeyId",
    "gcp:compute/instance:Instance": "bootDisk.kmsKeySelfLink",
    "gcp:compute/disk:Disk": "diskEncryptionKey.kmsKeySelfLink",
    "gcp:container/nodePool:NodePool": "nodeConfig.bootDiskKmsKey",
    "azure-native:compute:Disk": "encryption.diskEncryptionSetId",
    "azure-native:compute:Snapshot": "encryption.diskEncryptionSetId",
    "azure-native:compute:VirtualMachine": f"storageProfile.{OS_DISK_KEY}",
    "azure-native:compute:VirtualMachineScaleSet": f"virtualMachineProfile.storageProfile.{OS_DISK_KEY}",
    "azure-native:containerservice:ManagedCluster": "diskEncryptionSetID",
}


AGENT_POOL = "azure-native:containerservice:AgentPool"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
STORAGE_CLASS = "kubernetes:storage.k8s.io/v1:StorageClass"
KEY_OF_DRIVER = {
    "ebs.csi.aws.com": "kmsKeyId",
    "pd.csi.storage.gke.io": "disk-encryption-kms-key",
    "disk.csi.azure.com": "diskEncryptionSetID",
}
"""CSI driver of disks → storage class parameter with the disks' key."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Every disk names its key; those of a launch template and of an instance each by itself."""
    props = resource.props
    if path := KEY_OF.get(resource.type):
        # An instance may get its root disk from its launch template, which is evaluated separately.
        # or its boot disk from a disk resource.
        if not (props.has("launchTemplate") or props.has("bootDisk.source")):
            yield from must_have_key(props, path)
        for disk in props.blocks("ebsBlockDevices"):
            yield from must_have_key(disk, "kmsKeyId")
        return
    if resource.type == NODE_GROUP:
        # EKS's own template has a disk without a key.
        yield from must_be_set(props, "launchTemplate", "a launch template, whose disks name their key")
        return
    if resource.type == AGENT_POOL:
        # Its disks use the cluster's key; caches and local disks do only with this setting.
        yield from must_equal(props, "enableEncryptionAtHost", True, default=False)
        return
    if resource.type == STORAGE_CLASS:
        yield from _disks_on_demand(props)
        return
    for mapping in props.blocks("blockDeviceMappings"):
        if mapping.has("ebs"):
            yield from must_equal(mapping, "ebs.encrypted", "true", default="false")
            yield from must_have_key(mapping, "ebs.kmsKeyId")


def _disks_on_demand(storage_class: PropertyBlock) -> Iterator[Violation]:
    driver = storage_class.get("provisioner")
    parameters = storage_class.block("parameters")
    if driver == "ebs.csi.aws.com":
        yield from must_equal(parameters, "encrypted", "true", default="false")
    if parameter := KEY_OF_DRIVER.get(driver):
        yield from must_have_key(parameters, parameter)


POLICY = Policy(
    name="security-disk-keys",
    title="Disks are encrypted with a customer-managed key",
    reason="Weights and data are cached on disks; revoking the key makes all of them unreadable.",
    remedy="Name a customer-managed key for the disk.",
    types=("aws:ec2/launchTemplate:LaunchTemplate", NODE_GROUP, AGENT_POOL, STORAGE_CLASS, *KEY_OF),
    evaluate=evaluate,
    frameworks=("AWS FSBP EC2.3", "CIS GKE 5.9.1", "NIST SP 800-53 SC-28", "NIST SP 800-53 SC-12"),
)
