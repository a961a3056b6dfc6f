"""Policy: disks, buckets, filesystems, backups and Kubernetes secrets are encrypted with a customer's key."""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import (
    SETTINGS,
    independent,
    must_avoid,
    must_be_set,
    must_equal,
    must_have_key,
    refused,
)
from policies.unknowns import PropertyBlock

KEY_OF_DRIVER = {
    "ebs.csi.aws.com": "kmsKeyId",
    "pd.csi.storage.gke.io": "disk-encryption-kms-key",
    "disk.csi.azure.com": "diskEncryptionSetID",
}
"""CSI driver of disks → storage class parameter with the disks' key."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The key and the switch of the type; disks of templates and instances, and rules of buckets, each."""
    props = resource.props
    if setting := SETTINGS["security-customer-keys"]["types"].get(resource.type):
        yield from must_equal(props, *setting)
    else:
        yield from must_avoid(props, refused("security-customer-keys"))
    if props.data.get("sqsManagedSseEnabled") is False:
        yield from must_have_key(props, "kmsMasterKeyId", "a key, or sqsManagedSseEnabled: true")
    # The root disk may come from a launch template or a disk, which is evaluated by itself.
    if (path := SETTINGS["security-customer-keys"]["keys"].get(resource.type)) and not (
        props.has("launchTemplate") or props.has("bootDisk.source")
    ):
        yield from must_have_key(props, path)
    if resource.type.startswith("aws:eks/nodeGroup"):  # EKS's own template has a disk without a key
        yield from must_be_set(props, "launchTemplate", "a launch template, whose disks name their key")
    if resource.type.endswith(":StorageClass"):
        yield from _disks_on_demand(props)
    for disk in props.blocks("ebsBlockDevices") if "ebsBlockDevices" in props.data else ():
        yield from must_have_key(disk, "kmsKeyId")
    for mapping in props.blocks("blockDeviceMappings") if "blockDeviceMappings" in props.data else ():
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
        "aws:*", "azure-native:*", "gcp:*", "kubernetes:storage.k8s.io/v1:StorageClass",
    ),
    evaluate=evaluate,
    frameworks=(
        "AWS FSBP EC2.3", "AWS FSBP EFS.1", "AWS FSBP EKS.3", "AWS FSBP S3.17", "CIS EKS 5.3.1",
        "CIS GKE 5.3.1", "CIS GKE 5.9.1", "NIST SP 800-53 SC-28", "NIST SP 800-53 SC-12",
    ),
)  # fmt: skip
