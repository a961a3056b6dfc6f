"""Policy: where a residency is declared, data and logs go only to buckets and stores that this run declares
or the parameter `inside` lists, if their names have no region.
"""

import re
from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation, texts
from policies.residency.locations import locations
from policies.rules import independent
from policies.unknowns import UNKNOWN, UnknownProperty, Value

DESTINATION = re.compile(
    r"(^|\.)(destinations?(\[\d+\])?(\.bucket)?|(destination|target|log\w*|s3)(Bucket)?(Arn|Uri|Name)?|bucketArn"
    r"|s3BucketName|dataRepositoryPath|importPath|exportPath|(log)?workspace(Resource)?Id|storageAccountId"
    r"|eventHubAuthorizationRuleId|destinationBucket\w*|gcsDestination\.\w+|\w*[dD]estinationUri)$"
)
"""Paths of properties that name where data go."""
WITHOUT_STORE = ("logDestination", "logGroupName", "logStreamName", "target")
"""Properties that name a store seldom, or with its region: not worth a line of each preview."""
STORE = re.compile(
    r"(?:arn:aws[\w-]*:s3:::|s3://|gs://|storage\.googleapis\.com/)(?P<bucket>[^/]+)"
    r"|(?P<path>(?:/subscriptions/|\w+\.googleapis\.com/).+)"
)


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A destination has its region, is declared in this run, or is listed as known to be inside."""
    if not resource.stack.residency.is_declared:
        return
    for path, key, value in resource.props.leaves:
        if DESTINATION.search(path):
            yield from _known(resource, path, key, value)


@independent
def _known(resource: Resource, path: str, key: str, value: Value) -> Iterator[Violation]:
    if value is UNKNOWN and key not in WITHOUT_STORE:
        raise UnknownProperty(path)
    if not isinstance(value, str) or any(locations(key, value)):
        return
    store = STORE.match(value)
    if store is None:
        return
    name = store["bucket"] or value.rpartition("/")[2]
    root = "/".join(value.split("/")[:3]) if "://" in value else value
    if not resource.stack.declared.has(name) and not {value, root} & set(resource.parameters["inside"]):
        yield Violation(path, root, "a target of this program, or one that the parameter `inside` lists")


POLICY = Policy(
    name="residency-destinations",
    title="Data and logs are sent to known buckets and stores",
    reason="A bucket's ARN, a path and a workspace's ID name no region; what is replicated there leaves.",
    remedy="Send to a store of this program, or add one in a permitted region to `inside`.",
    types=("aws:*", "azure-native:*", "gcp:*"),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=(
        "AWS Control Tower AWS-GR_RESTRICT_S3_CROSS_REGION_REPLICATION", "GDPR Art. 44",
        "NIST SP 800-53 AU-4(1)",
    ),
    parameters={
        "inside": texts("Targets inside the permitted regions, though their names do not say so.")
    },
)  # fmt: skip
