"""The custom role of whoever runs the engine, by the types of what a stack makes (`rights.yaml`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infra.spec import Stack
from infra.targets.azure.spec.provider import AzureSpec
from infra.targets.deploying import Declared, DeployRole, Pipeline, rights_of

AUDIENCE = "api://AzureADTokenExchange"


def deploy_role(
    stack: Stack, spec: AzureSpec, declared: Sequence[Declared], pipeline: Pipeline
) -> DeployRole:
    """Return federated credential and role definition; KeyError for a type that the table lacks."""
    wanted = rights_of(__package__, "azure-native:", declared)
    kept = [each for each in wanted if not pipeline.reads or each.endswith("/read")]
    what = "preview" if pipeline.reads else "deploy"
    scope = f"/subscriptions/{spec.subscription}"
    role = {
        "Name": f"{stack.name} {what}",
        "IsCustom": True,
        "Description": f"What the pipeline of the stack {stack.name} does",
        "Actions": kept,
        "NotActions": [],
        "AssignableScopes": [scope],
    }
    notes = (
        f"assign it at {scope}: the stack makes its own resource groups",
        "constrain its role assignments by a condition to the roles that the stack assigns",
        "put the application's group among access.admins",
        "the roles that `trainyard bootstrap` prints: state and its key",
    )
    return DeployRole(trust(pipeline), {f"{stack.name}-{what}": role}, notes)


def trust(pipeline: Pipeline) -> Mapping[str, object]:
    """Return the federated credential of an application; a flexible one (in preview) for many branches."""
    what = "preview" if pipeline.reads else "deploy"
    name = f"{pipeline.service}-{pipeline.project.replace('/', '-')}-{what}"
    known = {"name": name, "issuer": f"https://{pipeline.issuer}", "audiences": [AUDIENCE]}
    if not pipeline.subject.endswith("*"):
        return {**known, "subject": pipeline.subject}
    matches = {"value": f"claims['sub'] matches '{pipeline.subject}'", "languageVersion": 1}
    return {**known, "claimsMatchingExpression": matches}
