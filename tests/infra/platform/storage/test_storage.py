"""Volumes of teams and of the training environment, and the object store's teams, keys and bucket."""

import base64
from pathlib import Path

import pytest

from infra.common import names
from infra.stackfile import Stack
from infra.stackfile.queue import TeamSpec
from tests.infra.plan import Plan, plan


def test_a_new_teams_folders_are_created_by_a_new_job(local: Stack, local_plan: Plan, rendered: Path) -> None:
    more = local.model_copy(update={"teams": (*local.teams, TeamSpec(name="speech", queue="gpu"))})
    (before,) = local_plan.named("Job").values()
    (after,) = plan(more, rendered).named("Job").values()
    assert before["metadata"]["name"] != after["metadata"]["name"]
    assert "/data/checkpoints/speech" in after["spec"]["template"]["spec"]["initContainers"][0]["command"]


def keys(found: Plan, namespace: str) -> dict[str, str]:
    """Return the content of the Secret of a client, or of the store."""
    data = found.named("Secret")[f"{namespace}/{names.OBJECT_STORE}"]["data"]
    data = data.get("value", data)  # a secret has a mark beside it
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def test_every_team_has_separate_keys_and_the_stores_address(local: Stack, local_plan: Plan) -> None:
    store = keys(local_plan, names.STORAGE_NAMESPACE)
    teams = {team.name: keys(local_plan, names.team_namespace(team.name)) for team in local.teams}
    for name, client in teams.items():
        assert client.keys() - store.keys() == {"AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"}
        assert client["AWS_ACCESS_KEY_ID"] == f"team-{name}"
    secret_keys = {client["AWS_SECRET_ACCESS_KEY"] for client in (store, *teams.values())}
    assert len(secret_keys) == len(teams) + 1


def test_a_new_generation_of_keys_changes_no_others(local: Stack, local_plan: Plan, rendered: Path) -> None:
    store = local.storage.object_store.model_copy(update={"key_generations": {"research": 2}})
    storage = local.storage.model_copy(update={"object_store": store})
    after = plan(local.model_copy(update={"storage": storage}), rendered)
    changed = {
        team.name
        for team in local.teams
        if keys(after, names.team_namespace(team.name)) != keys(local_plan, names.team_namespace(team.name))
    }
    assert changed == {"research"}


def test_another_training_environment_has_other_claims_and_volumes_and_the_former_ones_remain(
    local: Stack, local_plan: Plan, rendered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def volumes(found: Plan) -> dict[str, str]:
        claims = found.named("PersistentVolumeClaim").items()
        return {name: each["spec"]["volumeName"] for name, each in claims if names.TRAINING_ENV in name}

    before = volumes(local_plan)
    retained = [each.name for each in local_plan.resources if each.retained]
    assert {*before, *before.values()} <= set(retained)
    monkeypatch.setattr("tests.infra.plan.TRAINING_ENV", Path("/opt/other-env"))
    after = volumes(plan(local, rendered))
    assert len(after) == len(before)
    assert not before.keys() & after.keys() and not set(before.values()) & set(after.values())
