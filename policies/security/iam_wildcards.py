"""Policy: IAM grants no wildcard actions, administrator policies, basic roles or public members."""

from __future__ import annotations

from collections.abc import Iterator

from policies.documents import statements
from policies.policy import Policy, Resource, Severity, Violation

BASIC_ROLES = ("roles/owner", "roles/editor")
ADMINISTRATORS = (":policy/AdministratorAccess", ":policy/PowerUserAccess", ":policy/IAMFullAccess")
PUBLIC_MEMBERS = ("allUsers", "allAuthenticatedUsers")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Actions of all services or all of one, on everything; basic roles on Google Cloud; members allUsers."""
    if resource.type.endswith("PolicyAttachment"):
        policy = str(resource.props.get("policyArn", ""))
        if policy.startswith("arn:aws") and policy.endswith(ADMINISTRATORS):
            yield Violation("policyArn", policy, "a policy of the services that are needed")
        return
    if resource.type.startswith("aws:"):
        for statement in statements(resource.props, "policy"):
            wide = [action for action in statement.actions if action == "*" or action.endswith(":*")]
            if statement.allows and wide and ("*" in wide or "*" in statement.resources):
                yield Violation(f"{statement.path}.Action", ", ".join(wide), "the actions that are needed")
        return
    if resource.props.get("role") in BASIC_ROLES:
        yield Violation("role", resource.props.get("role"), "a role of the services that are needed")
    for name in ("member", "members"):
        for member in resource.props.texts(name):
            if member in PUBLIC_MEMBERS:
                yield Violation(name, member, "named members")


POLICY = Policy(
    name="security-iam-wildcards",
    title="IAM grants no wildcards",
    reason="With `*` a job's identity is an administrator, and jobs run many people's code.",
    remedy="List the actions and the resources; use predefined roles of single services.",
    types=(
        "aws:iam/policy:Policy",
        "aws:iam/rolePolicy:RolePolicy",
        "aws:iam/userPolicy:UserPolicy",
        "aws:iam/groupPolicy:GroupPolicy",
        "aws:iam/*PolicyAttachment:*PolicyAttachment",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:projects/iAMBinding:IAMBinding",
    ),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP IAM.1", "AWS FSBP IAM.21", "NIST SP 800-53 AC-6"),
)
