"""Policy: IAM grants no wildcard actions (`*`, `SERVICE:*`), administrator policies, basic roles or public
members.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.documents import bindings, statements
from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import independent, must_name_members
from policies.unknowns import PropertyBlock

BASIC_ROLES = ("roles/owner", "roles/editor")
ADMINISTRATORS = (":policy/AdministratorAccess", ":policy/PowerUserAccess", ":policy/IAMFullAccess")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Find wildcard actions, administrator policies (AWS), basic roles and public members (Google Cloud)."""
    props = resource.props
    if resource.type.startswith("aws:"):
        yield from _administrator_policies(props)
        for holder in (props, *props.blocks("inlinePolicies")):
            yield from _wildcards(holder)
        return
    for binding in bindings(props):
        yield from _basic_or_public(binding)


@independent
def _administrator_policies(props: PropertyBlock) -> Iterator[Violation]:
    for name in ("policyArn", "policyArns", "managedPolicyArns"):
        for policy in props.texts(name):
            if policy.startswith("arn:aws") and policy.endswith(ADMINISTRATORS):
                yield Violation(name, policy, "a policy of the services that are needed")


@independent
def _wildcards(holder: PropertyBlock) -> Iterator[Violation]:
    for statement in statements(holder, "policy"):
        wide = [action for action in statement.actions if action == "*" or action.endswith(":*")]
        if statement.allows and wide:
            yield Violation(f"{statement.path}.Action", ", ".join(wide), "the actions that are needed")


@independent
def _basic_or_public(binding: PropertyBlock) -> Iterator[Violation]:
    if binding.get("role") in BASIC_ROLES:
        yield Violation(binding.at("role"), binding.get("role"), "a role of the services that are needed")
    yield from must_name_members(binding)


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
        "aws:iam/role:Role",
        "aws:iam/policyAttachment:PolicyAttachment",
        "aws:iam/*PolicyAttachment:*PolicyAttachment",
        "aws:iam/*PolicyAttachmentsExclusive:*PolicyAttachmentsExclusive",
        "gcp:projects/iAMMember:IAMMember",
        "gcp:projects/iAMBinding:IAMBinding",
        "gcp:projects/iAMPolicy:IAMPolicy",
        "gcp:folder/iAMMember:IAMMember",
        "gcp:folder/iAMBinding:IAMBinding",
        "gcp:folder/iAMPolicy:IAMPolicy",
        "gcp:organizations/iAMMember:IAMMember",
        "gcp:organizations/iAMBinding:IAMBinding",
        "gcp:organizations/iAMPolicy:IAMPolicy",
    ),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP IAM.1", "AWS FSBP IAM.21", "NIST SP 800-53 AC-6"),
)
