"""The roles of pipelines on Google Cloud and Azure: only the rights that the stack's resources need."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.common.artifacts import ROOT
from infra.common.target_registry import target_of
from infra.stackfile import Stack, load
from infra.targets.azure.account.rights import PRIVILEGED
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline
from tests.infra.plan import cluster_plan, stack_file

pytestmark = pytest.mark.clouds

PACKAGES = {"gcp": "pulumi_gcp", "azure": "pulumi_azure_native"}
DEPLOY, PREVIEW = (
    Pipeline("github", "team/research", read_only=reads, stack="dev") for reads in (False, True)
)
BRANCHES = Pipeline("gitlab", "team/research", read_only=True, stack="dev")
MOVING = Pipeline("github", "team/research", stack="dev", ids="123/456")


def role_of(stack: str, rendered: Path, pipeline: Pipeline) -> DeployRole:
    loaded, declared = planned(stack, rendered)
    account = target_of(loaded.target.kind).open_account()
    assert account is not None
    return account.deploy_role(loaded, declared, pipeline)


@cache
def planned(stack: str, rendered: Path) -> tuple[Stack, Sequence[DeclaredResource]]:
    loaded = load(stack_file(stack))
    plan = cluster_plan(loaded, rendered)
    return loaded, [DeclaredResource(each.type, each.name, each.inputs) for each in plan.resources]


def rights(role: DeployRole) -> set[str]:
    (found,) = role.rights.values()
    return set(found.get("includedPermissions", found.get("Actions")))


def table(kind: str) -> Mapping[str, Any]:
    text = (ROOT / "infra" / "targets" / kind / "account" / "rights.yaml").read_text()
    found: Mapping[str, Any] = yaml.safe_load(text)
    return found


def made(kind: str) -> Iterator[tuple[str, str]]:
    """Yield module and class of every resource that the target's program imports."""
    for file in (ROOT / "infra" / "targets" / kind / "cluster").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            module = getattr(node, "module", None) or ""
            if (
                isinstance(node, ast.ImportFrom)
                and module.startswith(PACKAGES[kind])
                and not module.endswith(("._inputs", ".outputs"))
            ):
                yield from (
                    (module.split(".")[1], name.name) for name in node.names if name.name[0].isupper()
                )


@pytest.mark.parametrize("kind", PACKAGES)
def test_the_table_has_every_type_that_a_stack_can_have(kind: str) -> None:
    known = {(key.split(":")[1].split("/")[0], key.rpartition(":")[2]) for key in table(kind)}
    types = {
        each for each in made(kind) if each[0] != "provider" and not each[1].endswith(("Args", "Result"))
    }
    assert types == known


@pytest.mark.parametrize(
    ("stack", "needed"),
    [
        ("gcp", {"container.clusters.create", "lustre.instances.create", "compute.networks.create"}),
        ("gcp-tpu", {"container.clusters.create", "file.instances.create"}),
        (
            "azure",
            {
                "Microsoft.ContainerService/managedClusters/write",
                "Microsoft.StorageCache/amlFilesystems/write",
            },
        ),
    ],
)
def test_a_role_has_its_stacks_rights_and_no_wildcard(stack: str, needed: set[str], rendered: Path) -> None:
    found = rights(role_of(stack, rendered, DEPLOY))
    assert needed <= found
    assert not [each for each in found if "*" in each]
    assert found.isdisjoint(REFUSED)


REFUSED = Path(__file__).with_name("refused_rights.txt").read_text().split()
"""Rights that an attacker with the role would try: 21 on Google Cloud, 21 on Azure."""


@pytest.mark.parametrize("stack", ["gcp", "azure"])
def test_the_role_of_previews_only_reads(stack: str, rendered: Path) -> None:
    found = rights(role_of(stack, rendered, PREVIEW))
    assert found
    assert {each.rpartition("/")[2].rpartition(".")[2] for each in found} <= {
        "read",
        "get",
        "list",
        "getIamPolicy",
    }


def test_on_gcp_it_may_grant_only_the_roles_of_the_stack(rendered: Path) -> None:
    expression = role_of("gcp", rendered, DEPLOY).condition["expression"]
    _, declared = planned("gcp", rendered)
    granted = {each.inputs["role"] for each in declared if each.kind == "IAMMember"}
    attribute, _, roles = expression.partition(".hasOnly(")
    assert attribute == "api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', [])"
    assert set(ast.literal_eval(roles.removesuffix(")"))) == granted
    assert granted.isdisjoint({"roles/owner", "roles/editor", "roles/resourcemanager.projectIamAdmin"})
    assert not role_of("gcp", rendered, PREVIEW).condition


def test_on_azure_it_may_not_assign_or_remove_roles_that_assign_roles(rendered: Path) -> None:
    condition = role_of("azure", rendered, DEPLOY).condition
    assert condition["conditionVersion"] == "2.0"
    write, delete = condition["condition"].split(" AND ")
    assert "roleAssignments/write'" in write
    assert "@Request[" in write
    assert "roleAssignments/delete'" in delete
    assert "@Resource[" in delete
    _, declared = planned("azure", rendered)
    assigned = {
        str(each.inputs["roleDefinitionId"]).rpartition("/")[2]
        for each in declared
        if each.kind == "RoleAssignment"
    }
    assert not [each for each in assigned if each in condition["condition"]]
    assert all(each in part for each in PRIVILEGED.values() for part in (write, delete))
    assert not role_of("azure", rendered, PREVIEW).condition


def test_on_gcp_the_jobs_of_one_environment_may_sign_in(rendered: Path) -> None:
    trust = role_of("gcp", rendered, DEPLOY).trust
    subject = "repo:team/research:environment:dev-production"
    assert trust["provider"]["attributeCondition"] == f"assertion.sub in ['{subject}']"
    assert trust["provider"]["oidc"] == {"issuerUri": "https://token.actions.githubusercontent.com"}
    (member,) = trust["members"]
    assert member.endswith(f"/workloadIdentityPools/github/subject/{subject}")
    moving = role_of("gcp", rendered, MOVING).trust
    assert moving["provider"]["attributeCondition"].endswith("&& assertion.repository_id == '456'")
    assert moving["members"][1].endswith("/subject/repo:team@123/research@456:environment:dev-production")
    branches = role_of("gcp", rendered, BRANCHES).trust
    start = "project_path:team/research:ref_type:branch:ref:"
    assert branches["provider"]["attributeCondition"] == f"assertion.sub.startsWith('{start}')"
    assert branches["members"][0].endswith("/workloadIdentityPools/gitlab/attribute.project/team/research")


def test_on_azure_the_jobs_of_one_environment_may_sign_in(rendered: Path) -> None:
    (trust,) = role_of("azure", rendered, DEPLOY).trust["credentials"]
    assert trust["subject"] == "repo:team/research:environment:dev-production"
    names = [each["name"] for each in role_of("azure", rendered, MOVING).trust["credentials"]]
    assert names == ["github-team-research-deploy-1", "github-team-research-deploy-2"]
    assert (trust["issuer"], trust["audiences"]) == (
        f"https://{DEPLOY.issuer}",
        ["api://AzureADTokenExchange"],
    )
    (branches,) = role_of("azure", rendered, BRANCHES).trust["credentials"]
    matched = "claims['sub'] matches 'project_path:team/research:ref_type:branch:ref:*'"
    assert branches["claimsMatchingExpression"] == {"value": matched, "languageVersion": 1}
