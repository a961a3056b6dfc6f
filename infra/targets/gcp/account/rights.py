"""Describes the IAM parts of the service account that deploys (or only previews) a stack on Google Cloud:
custom role, limit on granting roles, and workload identity federation. It creates nothing.

The role's permissions follow from the resource types that the stack declares.
"""

import re
from collections.abc import Mapping, Sequence

from infra.stackfile import Stack
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline, rights_of
from infra.targets.gcp.stackfile.target import GcpSpec

_PROJECT_GRANT = "gcp:projects/iAMMember:IAMMember"
_READS = re.compile(r"\.(get|list|getIamPolicy)$")


def deploy_role(
    stack: Stack, spec: GcpSpec, declared: Sequence[DeclaredResource], pipeline: Pipeline
) -> DeployRole:
    """Return the identity provider of a pool and the role; KeyError for a type that the table lacks."""
    wanted = rights_of(__package__, "gcp:", declared)
    permissions = [each for each in wanted if not pipeline.read_only or _READS.search(each)]
    what = "preview" if pipeline.read_only else "deploy"
    role = {"title": f"{stack.name} {what}", "stage": "GA", "includedPermissions": permissions}
    name = f"{stack.name}_{what}".replace("-", "_")  # role IDs may not contain a dash
    return DeployRole(
        trust(spec, pipeline),
        {f"projects/{spec.project}/roles/{name}": role},
        {} if pipeline.read_only else _grants(declared),
        (
            "give the role, under `condition`, to a separate service account, in the project, and put that"
            " among access.admins",
            "roles/iam.workloadIdentityUser on that service account, for each of `members`",
            "it applies to the whole project, as roles cannot be limited to a stack: use a project per stack",
            "the roles that `trainyard stack state-bucket` prints, for the state and its key",
        ),
    )


def _grants(declared: Sequence[DeclaredResource]) -> Mapping[str, object]:
    """Let it grant and revoke the project's roles that the stack does, and no others.

    Where a request grants nothing the attribute is empty, and the condition holds (IAM, "Set limits on
    granting roles").
    """
    roles = sorted({str(each.inputs["role"]) for each in declared if each.type == _PROJECT_GRANT})
    if not roles:
        return {}
    attribute = "api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', [])"
    return {"title": "roles of the stack alone", "expression": f"{attribute}.hasOnly({roles!r})"}


def trust(spec: GcpSpec, pipeline: Pipeline) -> Mapping[str, object]:
    """Return a workload identity pool's provider for the pipeline's jobs only, and their members."""
    pool = f"projects/{spec.project_number}/locations/global/workloadIdentityPools/{pipeline.service}"
    subjects = [each.removesuffix("*") for each in pipeline.subjects]
    is_pattern = [*pipeline.subjects] != subjects
    condition = f"assertion.sub.startsWith('{subjects[0]}')" if is_pattern else f"assertion.sub in {subjects}"
    if pipeline.ids:
        condition += f" && assertion.repository_id == '{pipeline.ids.partition('/')[2]}'"
    project = "repository" if pipeline.service == "github" else "project_path"
    members = [f"principal://iam.googleapis.com/{pool}/subject/{each}" for each in subjects]
    of_project = f"principalSet://iam.googleapis.com/{pool}/attribute.project/{pipeline.project}"
    return {
        "provider": {
            "name": f"{pool}/providers/{'preview' if pipeline.read_only else 'deploy'}",
            "oidc": {"issuerUri": f"https://{pipeline.issuer}"},
            "attributeMapping": {
                "google.subject": "assertion.sub",
                "attribute.project": f"assertion.{project}",
            },
            "attributeCondition": condition,
        },
        "members": [of_project] if is_pattern else members,
    }
