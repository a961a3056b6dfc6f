"""Policy: nothing is granted to everybody: by an IAM document, a member, an ACL, a trust policy, a switch, or
a missing public access block.
"""

import re
from collections.abc import Iterator

from policies.documents import allows, conditions, is_limited, is_restricted, principals, statements
from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import independent, must_avoid, must_equal, refused
from policies.unknowns import UNKNOWN, PropertyBlock, UnknownProperty

BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
EVERYBODY = re.compile(
    r"(^|:)(allUsers|allAuthenticatedUsers)$|acs\.amazonaws\.com/groups/global/(AllUsers|AuthenticatedUsers)$"
    r"|^SERVICE_PROVIDED_EIPS$"
)
"""Members and grantees that mean the public, on Google Cloud and in S3's ACLs."""
UNKNOWN_KEYS = ("member", "members", "entity", "grantee")
ANYONES = re.compile(
    r"githubusercontent|gitlab\.com|terraform\.io|pulumi\.com|bitbucket|circleci|accounts\.google|/oidc\.eks\."
)
"""Identity providers at which everybody (or every pod) has an account: only a condition on the subject says
who."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Values of any type, then the switches of buckets, then documents."""
    props, unknown = resource.props, ""
    for path, key, value in props.leaves:
        if value is UNKNOWN:
            unknown = unknown or (path if key in UNKNOWN_KEYS else "")
        elif isinstance(value, str) and EVERYBODY.search(value):
            yield Violation(path, value, "named members")
    yield from must_avoid(props, refused("security-public-access"))
    if "unctionUrl" in resource.type:
        yield from must_avoid(props, {"authorizationType": (("NONE",), "AWS_IAM")})
    yield from _buckets(resource)
    yield from _members(props)
    yield from _invokers(resource)
    yield from _federated(resource)
    if unknown and not resource.type.startswith("kubernetes:"):
        yield from _later(unknown)
    for statement in statements(props):
        yield from _public(statement, props)


def _buckets(resource: Resource) -> Iterator[Violation]:
    if "PublicAccessBlock" in resource.type.rpartition(":")[2]:
        for name in BLOCKS:
            yield from must_equal(resource.props, name, True, default=False)
    elif resource.type == "gcp:storage/bucket:Bucket":
        yield from must_equal(resource.props, "publicAccessPrevention", "enforced", default="inherited")
        yield from must_equal(resource.props, "uniformBucketLevelAccess", True, default=False)


@independent
def _members(props: PropertyBlock) -> Iterator[Violation]:
    for member in re.findall(r'"(allUsers|allAuthenticatedUsers)"', str(props.get("policyData", ""))):
        yield Violation("policyData", member, "named members")


@independent
def _invokers(resource: Resource) -> Iterator[Violation]:
    """A function's permission for everybody, unless it names the caller's resource or account."""
    if resource.type != "aws:lambda/permission:Permission" or resource.props.get("principal") != "*":
        return
    if not any(resource.props.has(name) for name in ("sourceArn", "sourceAccount", "principalOrgId")):
        yield Violation("principal", "*", "a named principal, or sourceArn")


@independent
def _federated(resource: Resource) -> Iterator[Violation]:
    """Google Cloud's trust in an identity provider at which everybody has an account."""
    props = resource.props
    is_provider = resource.type.endswith(":WorkloadIdentityPoolProvider")
    if (
        is_provider
        and ANYONES.search(props.get("oidc.issuerUri", ""))
        and not props.has("attributeCondition")
    ):
        yield Violation("attributeCondition", "any account", "a condition on the repository or the owner")


@independent
def _later(path: str) -> Iterator[Violation]:
    yield from ()
    raise UnknownProperty(path)


@independent
def _public(statement: PropertyBlock, props: PropertyBlock) -> Iterator[Violation]:
    if not allows(statement) or is_limited(statement, props):
        return
    if statement.has("NotPrincipal"):
        yield Violation(statement.at("NotPrincipal"), "everybody but some", "named principals")
    for principal in principals(statement):
        account = principal.split(":")[4] if principal.startswith("arn:") else principal
        if not re.sub(r"[*?]", "", account) and not is_restricted(statement):
            yield Violation(statement.at("Principal"), principal, "named principals, or a condition")
        if ANYONES.search(principal) and not any(
            key.endswith(":sub") and is_restricted(statement) for _, key, _ in conditions(statement)
        ):
            yield Violation(
                statement.at("Condition"), f"any subject of {principal}", "a condition on its `sub`"
            )


POLICY = Policy(
    name="security-public-access",
    title="Nothing is public",
    reason="A public bucket, key or role exposes checkpoints and datasets, which may belong to others.",
    remedy="Block public access; share through named principals.",
    types=("aws:*", "aws-native:*", "azure-native:*", "gcp:*"),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP S3.8", "CIS AWS Foundations 2.1.4", "CIS GCP 5.1", "NIST SP 800-53 AC-3"),
)
