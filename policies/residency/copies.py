"""Policy: where a residency is declared, no setting lets the cloud choose where copies are: multi-region
keys, geo-redundant storage, automatic replication, edge caches.
"""

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation
from policies.unknowns import UNKNOWN, UnknownProperty

SETTINGS = {
    "multiRegion": ("true", "false"),
    "enableCdn": ("true", "false"),
    "allowCrossTenantReplication": ("true", "false"),
    "geoRedundantBackup": ("Enabled", "Disabled"),
    "automatic": ("true", "replicas with locations"),
}
"""Name of a property, of any type → value that spreads copies, and what is allowed."""
OF_TYPE = {
    "aws:cloudfront/distribution:Distribution": ("enabled", "true", "false"),
    "aws:s3/bucketAccelerateConfiguration:BucketAccelerateConfiguration": ("status", "Enabled", "Suspended"),
    "aws:s3/bucketAccelerateConfigurationV2:BucketAccelerateConfigurationV2": (
        "status", "Enabled", "Suspended",
    ),
}  # fmt: skip
GEO_SKU = re.compile(r"(_|^)(RA-?)?GZ?RS$", re.IGNORECASE)
CHOOSING = ("sku.name", "multiRegion", "allowCrossTenantReplication")
"""Properties without which nothing can be judged, where they are not known."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Settings by their names and values; a type that caches at the edge by its switch."""
    if resource.stack.residency.permits("anywhere"):
        return
    name, on, off = OF_TYPE.get(resource.type, ("", "", ""))
    unknown = ""
    for path, key, value in resource.props.leaves:
        text = str(value).lower() if isinstance(value, bool) else value
        if value is UNKNOWN:
            unknown = unknown or (path if path in (*CHOOSING, name, "replication") else "")
        elif key in SETTINGS and text == SETTINGS[key][0]:
            yield Violation(path, text, SETTINGS[key][1])
        elif path == name and text == on:
            yield Violation(path, text, off)
        elif (
            isinstance(text, str)
            and text[-2:] in ("RS", "rs")
            and GEO_SKU.search(text)
            and re.search("sku|replication", path, re.IGNORECASE)
        ):
            yield Violation(path, text, "a SKU of one region, such as Standard_ZRS")
        elif text == "GeoRedundant":
            yield Violation(path, text, "LocallyRedundant or ZoneRedundant")
    if resource.type.endswith("/secret:Secret") and not unknown and resource.props.has("replication.auto"):
        yield Violation("replication.auto", "replicas anywhere", "replication.userManaged with locations")
    if unknown:
        raise UnknownProperty(unknown)


POLICY = Policy(
    name="residency-copies",
    title="The cloud does not choose where copies are",
    reason=(
        "A geo-redundant SKU copies every byte to the paired region, one call replicates a multi-region key, "
        "and an edge cache keeps copies near its readers."
    ),
    remedy="Choose a setting of one region; exempt what is public.",
    types=("aws:*", "azure-native:*", "gcp:*"),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SC-12", "NIST SP 800-53 SA-9(5)"),
)  # fmt: skip
