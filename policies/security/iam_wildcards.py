"""Policy: IAM documents and roles, wherever they are, grant no wildcard actions, administrator policies, or
basic roles.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.documents import allows, is_broad, is_restricted, statements
from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import independent
from policies.unknowns import PropertyBlock

ADMINISTRATOR = re.compile(
    r"^arn:aws[\w-]*:iam::aws:policy/([\w-]+/)?(AdministratorAccess\S*|PowerUserAccess|\w*FullAccess(V\d)?)$"
)
"""AWS's policies with all actions, or all of a service, on every resource."""
BASIC_ROLES = ("roles/owner", "roles/editor")
IMPERSONATING = ("roles/iam.serviceAccountTokenCreator", "roles/iam.serviceAccountUser")
"""Roles that on a project are those of all its service accounts."""
AZURE_OWNERS = re.compile(
    r"roleDefinitions/(8e3af657-a8ff-443c-a75c-2fe8c4bcb635|18d7d88d-d35e-4fb5-a5c3-7773c20a72d9)$",
    re.IGNORECASE,
)
"""Owner, and User Access Administrator."""
AZURE_CONTRIBUTOR = re.compile(r"roleDefinitions/b24988ac-6180-42a0-ab88-20f7382dd24c$", re.IGNORECASE)
SUBSCRIPTION = re.compile(r"/subscriptions/[^/]+/?|/providers/Microsoft.Management/managementGroups/.+")
ESCALATING = ("iam", "organizations", "sts")
"""Services with whose actions an identity gives itself all rights."""
ESCALATIONS = ("passrole", "attachrolepolicy", "attachuserpolicy", "putrolepolicy", "putuserpolicy",
               "createaccesskey", "createpolicyversion", "updateassumerolepolicy")  # fmt: skip
"""Actions of IAM by which it does so on every resource."""
NEEDED = "the actions that are needed"


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Documents, policies named by their ARN, and roles, of any type."""
    props = resource.props
    of_all = resource.type.startswith(("gcp:projects/", "gcp:folder/", "gcp:organizations/"))
    for path, key, value in props.leaves:
        if isinstance(value, str) and (
            ADMINISTRATOR.match(value)
            or (key == "role" and (value in BASIC_ROLES or (of_all and value in IMPERSONATING)))
            or AZURE_OWNERS.search(value)
        ):
            yield Violation(path, value, "a policy or role of the services that are needed")
    if AZURE_CONTRIBUTOR.search(str(props.data.get("roleDefinitionId", ""))):
        yield from _contributor(props)
    if resource.type.startswith("azure-native:authorization:RoleDefinition"):
        for index, permission in enumerate(props.blocks("permissions")):
            if "*" in permission.texts("actions"):
                yield Violation(f"permissions[{index}].actions", "*", NEEDED)
    if resource.type.startswith("gcp:") and "policyData" in props.data:
        yield from _basic_roles(props)
    # A control policy of an organisation grants nothing by itself.
    for statement in () if resource.type.startswith("aws:organizations/") else statements(props):
        yield from _wildcards(statement)


@independent
def _contributor(props: PropertyBlock) -> Iterator[Violation]:
    if SUBSCRIPTION.fullmatch(props.get("scope", "")):
        yield Violation(
            "scope", f"Contributor on {props.get('scope')}", "a role on a resource group, or less"
        )


@independent
def _basic_roles(props: PropertyBlock) -> Iterator[Violation]:
    for role in re.findall(r'"role"\s*:\s*"(roles/(?:owner|editor))"', props.get("policyData")):
        yield Violation("policyData", role, "a role of the services that are needed")


@independent
def _wildcards(statement: PropertyBlock) -> Iterator[Violation]:
    if not allows(statement) or statement.has("Principal") or statement.has("NotPrincipal"):
        return  # a resource's own document grants its own actions, to those that it names
    if statement.has("NotAction"):
        yield Violation(statement.at("NotAction"), "all actions but some", NEEDED)
    wide = [action for action in statement.texts("Action") if _is_wide(statement, action)]
    if wide:
        yield Violation(statement.at("Action"), ", ".join(wide), NEEDED)


def _is_wide(statement: PropertyBlock, action: str) -> bool:
    """Whether an action is every one, or every one of a service on more than named resources."""
    service, _, verb = action.lower().partition(":")
    if not re.sub(r"[*?]", "", service):
        return True
    if re.sub(r"[*?]", "", verb):
        if service != "iam" or not any(fnmatchcase(each, verb) for each in ESCALATIONS):
            return False
    elif service in ESCALATING or statement.has("NotResource"):
        return True
    return any(map(is_broad, statement.texts("Resource"))) and not is_restricted(statement)


POLICY = Policy(
    name="security-iam-wildcards",
    title="IAM grants no wildcards",
    reason="With `*` a job's identity is an administrator, and jobs run many people's code.",
    remedy="List the actions, or the resources of a service's actions; use roles of single services.",
    types=("aws:*", "aws-native:*", "azure-native:*", "gcp:*"),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP IAM.1", "AWS FSBP IAM.21", "NIST SP 800-53 AC-6"),
)
