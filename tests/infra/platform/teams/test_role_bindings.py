"""RBAC of teams: members may do what a job needs in their team's namespace, and nothing else."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.stackfile import Stack
from infra.stackfile.operators import TrainingOperatorSpec
from infra.stackfile.queue import TeamSpec
from tests.infra.plan import Plan, plan

FORBIDDEN = {"pods/attach", "pods/ephemeralcontainers", "serviceaccounts/token", "roles", "configmaps"}


@pytest.fixture(scope="module")
def with_members(local: Stack, rendered: Path) -> Plan:
    team, other = local.teams
    team = team.model_copy(update={"members": ("research",), "viewers": ("evaluation", "audit")})
    return plan(local.model_copy(update={"teams": (team, without_groups(other))}), rendered)


def without_groups(team: TeamSpec) -> TeamSpec:
    return team.model_copy(update={"members": (), "viewers": ()})


def rules(found: Plan, role: str) -> dict[str, set[str]]:
    """Return resource → verbs of a cluster role."""
    made: dict[str, set[str]] = {}
    for rule in found.named("ClusterRole")[role]["rules"]:
        for resource in rule["resources"]:
            made.setdefault(resource, set()).update(rule["verbs"])
    return made


def subjects(binding: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(each["kind"], each["name"]) for each in binding["subjects"]]


def test_a_team_without_groups_has_no_roles(local: Stack, rendered: Path) -> None:
    teams = tuple(without_groups(team) for team in local.teams)
    found = plan(local.model_copy(update={"teams": teams}), rendered)
    assert not [name for name in found.named("ClusterRole") if name.startswith("trainyard-")]


def test_groups_are_bound_only_in_the_namespace_of_their_team(with_members: Plan, local: Stack) -> None:
    namespace = f"team-{local.teams[0].name}"
    made = {
        name: each for name, each in with_members.named("RoleBinding").items() if "trainyard-team" in name
    }
    assert set(made) == {f"{namespace}/trainyard-team-member", f"{namespace}/trainyard-team-viewer"}
    member, viewer = (made[f"{namespace}/trainyard-team-{role}"] for role in ("member", "viewer"))
    assert subjects(member) == [("Group", "research")]
    assert subjects(viewer) == [("Group", "evaluation"), ("Group", "audit")]
    assert member["metadata"]["namespace"] == namespace


def test_all_users_may_read_the_cluster_objects_that_a_job_may_name_and_no_others(with_members: Plan) -> None:
    bound = with_members.named("ClusterRoleBinding")
    assert [name for name in bound if name.startswith("trainyard")] == ["trainyard-teams"]
    assert subjects(bound["trainyard-teams"]) == [
        ("Group", "audit"),
        ("Group", "evaluation"),
        ("Group", "research"),
    ]
    seen = rules(with_members, "trainyard-teams")
    assert set(seen) == {
        "clusterqueues",
        "clustertrainingruntimes",
        "resourceflavors",
        "topologies",
        "workloadpriorityclasses",
    }
    assert all(verbs == {"get", "list", "watch"} for verbs in seen.values())


def test_members_submit_and_cancel_jobs_and_read_logs(with_members: Plan) -> None:
    member = rules(with_members, "trainyard-team-member")
    for jobs in ("jobs", "jobsets", "mpijobs", "trainjobs"):
        assert member[jobs] == {"get", "list", "watch", "create", "delete"}
    for seen in ("pods", "pods/log"):
        assert member[seen] == {"get", "list", "watch"}
    assert member["workloads"] == {"get", "list", "watch", "patch"}, "to pause a job"


def test_members_create_secrets_that_no_user_can_read(with_members: Plan) -> None:
    """`patch` and `delete` would return a secret's content."""
    assert rules(with_members, "trainyard-team-member")["secrets"] == {"create"}
    assert "secrets" not in rules(with_members, "trainyard-team-viewer")


def test_members_may_exec_into_pods_and_viewers_may_not(with_members: Plan) -> None:
    ways = ("pods/exec", "pods/portforward")
    assert all(rules(with_members, "trainyard-team-member")[way] == {"create", "get"} for way in ways)
    assert not {*ways} & set(rules(with_members, "trainyard-team-viewer"))


def test_members_may_exec_into_their_log_reader_only_by_its_name(with_members: Plan) -> None:
    roles = {name: each for name, each in with_members.named("Role").items() if "trainyard-logs/" in name}
    assert set(roles) == {"trainyard-logs/team-research"}, "the other team has no members"
    [role] = roles.values()
    assert {tuple(rule["resourceNames"]) for rule in role["rules"]} == {("team-research-0",)}
    assert {kind: set(rule["verbs"]) for rule in role["rules"] for kind in rule["resources"]} == {
        "pods": {"get"},
        "pods/exec": {"create", "get"},
    }
    binding = with_members.named("RoleBinding")["trainyard-logs/team-research"]
    assert subjects(binding) == [("Group", "research")]
    assert binding["roleRef"]["kind"] == "Role"


def test_viewers_change_nothing_and_nobody_has_more_than_a_job_needs(with_members: Plan) -> None:
    assert all(
        verbs == {"get", "list", "watch"} for verbs in rules(with_members, "trainyard-team-viewer").values()
    )
    for role in ("trainyard-team-member", "trainyard-team-viewer"):
        granted = rules(with_members, role)
        assert not FORBIDDEN & set(granted)
        assert not any("*" in verbs | {resource} for resource, verbs in granted.items())


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
