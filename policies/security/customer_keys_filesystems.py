"""Policy: filesystems and their backups are encrypted with a customer-managed key."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal, must_have_key

KEY_OF = {
    "aws:backup/vault:Vault": "kmsKeyArn",
    "aws:efs/fileSystem:FileSystem": "kmsKeyId",
    "aws:fsx/lustreFileSystem:LustreFileSystem": "kmsKeyId",
    "aws:fsx/openZfsFileSystem:OpenZfsFileSystem": "kmsKeyId",
    "gcp:filestore/instance:Instance": "kmsKeyName",
    "gcp:lustre/instance:Instance": "kmsKey",
    "azure-native:storagecache:AmlFilesystem": "encryptionSettings.keyEncryptionKey.keyUrl",
}

NETAPP = ("azure-native:netapp:CapacityPoolVolume", "azure-native:netapp:Volume")
"""Types of NetApp volumes: the account has the key, and a property of the volume selects its use."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Every filesystem names its key, or uses its account's; EFS has a switch besides."""
    if resource.type in NETAPP:
        path, wanted = "encryptionKeySource", "Microsoft.KeyVault"
        yield from must_equal(resource.props, path, wanted, default="Microsoft.NetApp")
        return
    if resource.type == "aws:efs/fileSystem:FileSystem":
        yield from must_equal(resource.props, "encrypted", True, default=False)
    yield from must_have_key(resource.props, KEY_OF[resource.type])


POLICY = Policy(
    name="security-filesystem-keys",
    title="Filesystems are encrypted with a customer-managed key",
    reason="Shared filesystems hold all teams' datasets and checkpoints for longer than any job.",
    remedy="Name a customer-managed key; it cannot be changed in place.",
    types=(*KEY_OF, *NETAPP),
    evaluate=evaluate,
    frameworks=("AWS FSBP EFS.1", "NIST SP 800-53 SC-28", "NIST SP 800-53 SC-12"),
)
