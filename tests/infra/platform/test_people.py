"""People do in their team's namespace what a job needs, and nothing else anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from infra.spec import Stack
from tests.infra.plan import Plan, plan

FORBIDDEN = {"secrets", "pods/exec", "pods/attach", "pods/portforward", "serviceaccounts/token", "roles"}


@pytest.fixture(scope="module")
def with_people(local: Stack, rendered: Path) -> Plan:
    team = local.teams[0].model_copy(update={"members": ("research",), "viewers": ("evaluation", "audit")})
    return plan(local.model_copy(update={"teams": (team, *local.teams[1:])}), rendered)


def rules(found: Plan, role: str) -> dict[str, set[str]]:
    """Resource → verbs of a cluster role."""
    made: dict[str, set[str]] = {}
    for rule in found.named("ClusterRole")[role]["rules"]:
        for resource in rule["resources"]:
            made.setdefault(resource, set()).update(rule["verbs"])
    return made


def subjects(binding: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(each["kind"], each["name"]) for each in binding["subjects"]]


def test_a_team_without_groups_has_no_roles(local_plan: Plan) -> None:
    assert not [name for name in local_plan.named("ClusterRole") if name.startswith("trainyard-")]


def test_groups_are_bound_in_the_namespace_of_their_team_alone(with_people: Plan, local: Stack) -> None:
    namespace = f"team-{local.teams[0].name}"
    made = {name: each for name, each in with_people.named("RoleBinding").items() if "trainyard-team" in name}
    assert set(made) == {f"{namespace}/trainyard-team-member", f"{namespace}/trainyard-team-viewer"}
    member, viewer = (made[f"{namespace}/trainyard-team-{role}"] for role in ("member", "viewer"))
    assert subjects(member) == [("Group", "research")]
    assert subjects(viewer) == [("Group", "evaluation"), ("Group", "audit")]
    assert member["metadata"]["namespace"] == namespace
    assert not [name for name in with_people.named("ClusterRoleBinding") if "trainyard" in name]


def test_members_submit_and_cancel_jobs_and_read_logs(with_people: Plan) -> None:
    member = rules(with_people, "trainyard-team-member")
    for jobs in ("trainjobs", "mpijobs"):
        assert member[jobs] == {"get", "list", "watch", "create", "delete"}
    for seen in ("pods", "pods/log", "workloads"):
        assert member[seen] == {"get", "list", "watch"}


def test_viewers_change_nothing_and_nobody_reads_secrets_or_enters_a_pod(with_people: Plan) -> None:
    assert all(
        verbs == {"get", "list", "watch"} for verbs in rules(with_people, "trainyard-team-viewer").values()
    )
    for role in ("trainyard-team-member", "trainyard-team-viewer"):
        granted = rules(with_people, role)
        assert not FORBIDDEN & set(granted)
        assert not any("*" in verbs | {resource} for resource, verbs in granted.items())


def test_legacy_jobs_are_submitted_where_their_operator_is(local: Stack, rendered: Path) -> None:
    operators = local.operators.model_copy(update={"legacy_v1": True, "trainer": "off"})
    team = local.teams[0].model_copy(update={"members": ("research",)})
    stack = local.model_copy(update={"operators": operators, "teams": (team,), "job": None})
    member = rules(plan(stack, rendered), "trainyard-team-member")
    assert "create" in member["pytorchjobs"]
    assert "trainjobs" not in member
