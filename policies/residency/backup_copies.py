"""Policy: where a residency is declared, copies of backups, and standby volumes and instances, are in
permitted regions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import arn_region, must_be_permitted

LOCATION_IN_PATH = re.compile(r"/locations/([^/]+)")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Vaults that copies go to, and volumes and instances that stand by in another region."""
    props = resource.props
    for rule in props.blocks("rules"):
        for copy in rule.blocks("copyActions"):
            region = arn_region(copy.get("destinationVaultArn", ""))
            yield from must_be_permitted(resource, copy.at("destinationVaultArn"), region or "no region")
    for schedule in props.blocks("policyDetails.schedules"):
        for copy in schedule.blocks("crossRegionCopyRules"):
            name = "target" if copy.get("target") else "targetRegion"
            target = copy.get(name, "no region")
            yield from must_be_permitted(resource, copy.at(name), arn_region(target) or target)
    if region := props.get("dataProtection.replication.remoteVolumeRegion"):
        yield from must_be_permitted(resource, "dataProtection.replication.remoteVolumeRegion", region)
    for replica in props.blocks("initialReplication.replicas"):
        found = LOCATION_IN_PATH.search(replica.get("peerInstance", ""))
        region = found[1] if found else "no location"
        yield from must_be_permitted(resource, replica.at("peerInstance"), region)


POLICY = Policy(
    name="residency-backup-copies",
    title="Backup copies stay in the permitted regions",
    reason="Backups outlive their source, and their copies are easily overlooked.",
    remedy="Copy to a vault, volume or instance in a permitted region.",
    types=(
        "aws:backup/plan:Plan",
        "aws:dlm/lifecyclePolicy:LifecyclePolicy",
        "azure-native:netapp:CapacityPoolVolume",
        "azure-native:netapp:Volume",
        "gcp:filestore/instance:Instance",
    ),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 CP-9", "NIST SP 800-53 SA-9(5)"),
)
