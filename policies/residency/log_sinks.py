"""Policy: where a residency is declared, logs are sent only to permitted regions, or to destinations that the
parameter `inside` lists.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import INSIDE_PARAMETER, arn_region, must_be_listed, must_be_permitted

DESTINATIONS = ("destination", "destinationArn", "targetArn", "workspaceId", "storageAccountId",
                "eventHubAuthorizationRuleId")  # fmt: skip
FIREHOSE = "aws:kinesis/firehoseDeliveryStream:FirehoseDeliveryStream"
LOCATION_IN_PATH = re.compile(r"/locations/([^/]+)")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A destination has its region, or is listed as known to be inside."""
    # The destination of a delivery stream is a kind of target, such as `extended_s3`.
    names = ("extendedS3Configuration.bucketArn",) if resource.type == FIREHOSE else DESTINATIONS
    for name in names:
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
        FIREHOSE,
        "azure-native:*:DiagnosticSetting",
        "gcp:logging/projectSink:ProjectSink",
        "gcp:logging/folderSink:FolderSink",
        "gcp:logging/organizationSink:OrganizationSink",
    ),
    evaluate=evaluate,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 AU-4(1)"),
    parameters=INSIDE_PARAMETER,
)
