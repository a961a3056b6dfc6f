"""Disks are encrypted with a key of one's own."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_be_set, must_equal

KEY_OF = {
    "aws:ebs/volume:Volume": "kmsKeyId",
    "aws:ec2/instance:Instance": "rootBlockDevice.kmsKeyId",
    "gcp:compute/instance:Instance": "bootDisk.kmsKeySelfLink",
    "gcp:compute/disk:Disk": "diskEncryptionKey.kmsKeySelfLink",
    "gcp:container/nodePool:NodePool": "nodeConfig.bootDiskKmsKey",
    "azure-native:compute:Disk": "encryption.diskEncryptionSetId",
    "azure-native:containerservice:ManagedCluster": "diskEncryptionSetID",
}


NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"


def judge(resource: Resource) -> Iterator[Violation]:
    """Every disk names its key; those of a launch template and of an instance each by itself."""
    props = resource.props
    if path := KEY_OF.get(resource.type):
        # An instance may take its root disk from its launch template, which is judged itself.
        if not props.has("launchTemplate"):
            yield from must_be_set(props, path, "a customer key")
        for disk in props.blocks("ebsBlockDevices"):
            yield from must_be_set(disk, "kmsKeyId", "a customer key")
        return
    if resource.type == NODE_GROUP:
        # EKS's own template has a disk without a key.
        yield from must_be_set(props, "launchTemplate", "a launch template, whose disks name their key")
        return
    for mapping in props.blocks("blockDeviceMappings"):
        if mapping.has("ebs"):
            yield from must_equal(mapping, "ebs.encrypted", "true", default="false")
            yield from must_be_set(mapping, "ebs.kmsKeyId", "a customer key")


POLICY = Policy(
    name="security-disk-keys",
    title="Disks are encrypted with a customer key",
    reason="Weights and data are cached on disks; a key of one's own can be withdrawn from all of them.",
    remedy="Name a customer key for the disk.",
    types=("aws:ec2/launchTemplate:LaunchTemplate", NODE_GROUP, *KEY_OF),
    judge=judge,
    frameworks=("AWS FSBP EC2.3", "CIS GKE 5.9.1", "NIST SP 800-53 SC-28", "NIST SP 800-53 SC-12"),
)
