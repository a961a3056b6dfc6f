"""Logs hold prompts, samples and names; sinks move them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import INSIDE_PARAMETER, arn_region, must_be_listed, must_be_permitted

LOCATION_IN_PATH = re.compile(r"/locations/([^/]+)")


def judge(resource: Resource) -> Iterator[Violation]:
    """A destination says its region, or is listed as known to be inside."""
    for name in ("destination", "destinationArn", "targetArn"):
        target = resource.props.get(name)
        if target is None:
            continue
        found = LOCATION_IN_PATH.search(target)
        region = found[1] if found else arn_region(target)
        if region:
            yield from must_be_permitted(resource, name, region)
        else:
            yield from must_be_listed(resource, name, target)


POLICY = Policy(
    name="residency-log-sinks",
    title="Logs are sent within the permitted regions",
    reason="Training logs quote data. A sink to a bucket or stream elsewhere moves it without a copy job.",
    remedy="Send to a destination in a permitted region; list buckets known to be inside in `inside`.",
    types=(
        "aws:cloudwatch/logSubscriptionFilter:LogSubscriptionFilter",
        "aws:cloudwatch/logDestination:LogDestination",
        "gcp:logging/projectSink:ProjectSink",
        "gcp:logging/folderSink:FolderSink",
        "gcp:logging/organizationSink:OrganizationSink",
    ),
    judge=judge,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 AU-4(1)"),
    parameters=INSIDE_PARAMETER,
)
