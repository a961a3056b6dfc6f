"""Policy: where a residency is declared, the effective region of every cloud resource is permitted."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Severity, Violation
from policies.region import CLOUDS, cloud_of, effective_region

HOLDING_DATA = (
    "azure-native:*:*Account", "gcp:*ucket*", "gcp:artifactregistry/*", "gcp:kms/*", "gcp:logging/*",
    "gcp:secretmanager/*", "gcp:vertex/*",
)  # fmt: skip
"""Types of global resources that hold data; others are alerts, memberships, zones of DNS, policies."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The region that is in effect, not the one of the provider alone, must be permitted."""
    residency = resource.stack.residency
    cloud = cloud_of(resource)
    if not residency.is_declared or cloud is None:
        return
    region = effective_region(resource, cloud)
    if (
        region is not None
        and region.name == "global"
        and not any(fnmatchcase(resource.type, pattern) for pattern in HOLDING_DATA)
    ):
        return
    if region is not None and not residency.permits(region.name):
        yield Violation(region.source, region.name, str(residency))
    if region is None and cloud.required:
        yield Violation("region", "no region at all", str(residency))


POLICY = Policy(
    name="residency-region",
    title="Resources are in the regions that the stack declares",
    reason=(
        "Data residency is promised for regions. A resource's own `region` overrides its provider's, so a "
        "check of the provider alone is bypassed by one property."
    ),
    remedy="Set the region of the resource or of its provider to a permitted one.",
    types=tuple(cloud.types for cloud in CLOUDS),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)", "CSA CCM DSP-19"),
)
