"""RBAC of teams: members may do what a job needs in their team's namespace, and nothing else."""

from pathlib import Path

from infra.stackfile import Stack
from infra.stackfile.operators import TrainingOperatorSpec
from tests.infra.plan import Plan, plan


def rules(found: Plan, role: str) -> dict[str, set[str]]:
    """Return resource → verbs of a cluster role."""
    made: dict[str, set[str]] = {}
    for rule in found.named("ClusterRole")[role]["rules"]:
        for resource in rule["resources"]:
            made.setdefault(resource, set()).update(rule["verbs"])
    return made


def test_a_team_without_groups_has_no_roles(local: Stack, rendered: Path) -> None:
    teams = tuple(team.model_copy(update={"members": (), "viewers": ()}) for team in local.teams)
    found = plan(local.model_copy(update={"teams": teams}), rendered)
    assert not [name for name in found.named("ClusterRole") if name.startswith("trainyard-team")]


def test_legacy_jobs_are_submitted_where_their_operator_is(local: Stack, rendered: Path) -> None:
    operators = local.operators.model_copy(
        update={"training_operator": TrainingOperatorSpec(), "trainer": "off"}
    )
    team = local.teams[0].model_copy(update={"members": ("research",)})
    stack = local.model_copy(update={"operators": operators, "teams": (team,)})
    member = rules(plan(stack, rendered), "trainyard-team-member")
    assert "create" in member["pytorchjobs"]
    assert "trainjobs" not in member


def test_every_kind_of_job_that_members_submit_is_evaluated(local: Stack, rendered: Path) -> None:
    """A kind without a policy would need no queue, and its operator's pods would count as a queued job's."""
    kinds = ("PyTorchJob", "TFJob", "XGBoostJob", "PaddleJob", "JAXJob")
    operators = local.operators.model_copy(
        update={"training_operator": TrainingOperatorSpec.model_validate({"kinds": kinds})}
    )
    found = plan(local.model_copy(update={"operators": operators}), rendered)
    submitted = {kind for kind, verbs in rules(found, "trainyard-team-member").items() if "create" in verbs}
    policies = found.named("ValidatingAdmissionPolicy").values()
    constraints = [rule for each in policies for rule in each["spec"]["matchConstraints"]["resourceRules"]]
    evaluated = {kind for rule in constraints if "CREATE" in rule["operations"] for kind in rule["resources"]}
    assert submitted - {"pods/exec", "pods/portforward"} <= evaluated
    assert {"tfjobs", "paddlejobs", "jaxjobs"} <= submitted
