"""Custom role and federated credential of the identity that deploys (or only previews) a stack on Azure,
derived from the resource types that the stack declares.

A condition of the deploying role's assignment prevents the identity from assigning or removing roles that can
themselves assign roles, such as Owner.
"""

from collections.abc import Mapping, Sequence

from infra.stackfile import Stack
from infra.targets.azure.stackfile.target import AzureSpec
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline, rights_of

PRIVILEGED = {
    "Owner": "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",
    "Role Based Access Control Administrator": "f58310d9-a9f6-439a-9e8d-f62e7b41a168",
    "User Access Administrator": "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9",
}
"""Built-in roles that assign roles (Azure RBAC: built-in roles, privileged)."""
AUDIENCE = "api://AzureADTokenExchange"


def deploy_role(
    stack: Stack, spec: AzureSpec, declared: Sequence[DeclaredResource], pipeline: Pipeline
) -> DeployRole:
    """Return federated credentials and role definition; KeyError for a type that the table lacks."""
    wanted = rights_of(__package__, "azure-native:", declared)
    actions = [each for each in wanted if not pipeline.read_only or each.endswith("/read")]
    what = "preview" if pipeline.read_only else "deploy"
    scope = f"/subscriptions/{spec.subscription}"
    role = {
        "Name": f"{stack.name} {what}",
        "IsCustom": True,
        "Description": f"What the pipeline of the stack {stack.name} does",
        "Actions": actions,
        "NotActions": [],
        "AssignableScopes": [scope],
    }
    notes = (
        f"assign it at {scope} under `condition`: the stack creates its resource groups",
        "put the application's group among access.admins",
        "the roles that `trainyard stack state-bucket` prints, for the state and its key",
    )
    condition = {} if pipeline.read_only else assigns_no_rights()
    return DeployRole(trust(pipeline), {f"{stack.name}-{what}": role}, condition, notes)


def assigns_no_rights() -> Mapping[str, str]:
    """Return the condition by which it neither gives nor takes the roles that give roles.

    Source: Azure RBAC, "Delegate Azure role assignment management to others with conditions".
    """
    actions = ", ".join(PRIVILEGED.values())
    of = "[Microsoft.Authorization/roleAssignments:RoleDefinitionId]"
    limits = (
        f"((!(ActionMatches{{'Microsoft.Authorization/roleAssignments/{verb}'}}))"
        f" OR ({where}{of} ForAnyOfAllValues:GuidNotEquals {{{actions}}}))"
        for verb, where in (("write", "@Request"), ("delete", "@Resource"))
    )
    return {"condition": " AND ".join(limits), "conditionVersion": "2.0"}


def trust(pipeline: Pipeline) -> Mapping[str, object]:
    """Return the federated credentials of an application; a flexible one (in preview) for many branches."""
    what = "preview" if pipeline.read_only else "deploy"
    name = f"{pipeline.service}-{pipeline.project.replace('/', '-')}-{what}"
    known = {"issuer": f"https://{pipeline.issuer}", "audiences": [AUDIENCE]}
    credentials: list[Mapping[str, object]] = []
    for number, subject in enumerate(pipeline.subjects, 1):
        matches = {"value": f"claims['sub'] matches '{subject}'", "languageVersion": 1}
        of = {"claimsMatchingExpression": matches} if subject.endswith("*") else {"subject": subject}
        credentials.append({"name": f"{name}-{number}", **known, **of})
    return {"credentials": credentials}
