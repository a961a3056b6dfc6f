"""Policy: where a residency is declared, Azure storage accounts, Backup vaults and Recovery Services vaults
replicate neither to the paired region nor to another tenant.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation

GEO_SKUS = ("GRS", "RAGRS", "GZRS", "RAGZRS")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Geo-redundant SKUs and vaults copy to a paired region that Azure chooses."""
    if not resource.stack.residency.is_declared:
        return
    props = resource.props
    if str(props.get("sku.name", "")).upper().endswith(GEO_SKUS):
        yield Violation("sku.name", props.get("sku.name"), "a SKU of one region, such as Standard_ZRS")
    if props.get("allowCrossTenantReplication"):
        yield Violation("allowCrossTenantReplication", "true", "false")
    for setting in props.blocks("properties.storageSettings"):
        if setting.get("type") == "GeoRedundant":
            yield Violation(setting.at("type"), "GeoRedundant", "LocallyRedundant or ZoneRedundant")
    redundancy = props.block("properties.redundancySettings")
    if redundancy.get("standardTierStorageRedundancy") == "GeoRedundant":
        path = redundancy.at("standardTierStorageRedundancy")
        yield Violation(path, "GeoRedundant", "LocallyRedundant or ZoneRedundant")


POLICY = Policy(
    name="residency-geo-redundancy",
    title="Storage is not redundant across regions",
    reason="A geo-redundant SKU copies every byte to the paired region, which may be under another law.",
    remedy="Choose a locally or zone redundant SKU.",
    types=(
        "azure-native:storage:StorageAccount",
        "azure-native:dataprotection:BackupVault",
        "azure-native:recoveryservices:Vault",
    ),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)"),
)
