"""Volumes of teams and of the training environment, and the object store's teams, keys and bucket."""

import base64
import json
from pathlib import Path

import pytest

from infra.common import names
from infra.stackfile import Stack
from infra.stackfile.queue import TeamSpec
from tests.infra.plan import TRAINING_ENV, Plan, plan


def test_each_team_has_a_shared_volume_and_the_environment_read_only(local: Stack, local_plan: Plan) -> None:
    claims, volumes = local_plan.named("PersistentVolumeClaim"), local_plan.named("PersistentVolume")
    for team in local.teams:
        namespace = names.team_namespace(team.name)
        checkpoints = claims[f"{namespace}/{names.CHECKPOINTS_CLAIM}"]["spec"]
        environment = claims[f"{namespace}/{names.training_env_claim(str(TRAINING_ENV))}"]["spec"]
        assert checkpoints["accessModes"] == ["ReadWriteMany"]
        assert environment["accessModes"] == ["ReadOnlyMany"]
        folder = volumes[checkpoints["volumeName"]]["spec"]["hostPath"]["path"]
        assert folder.endswith(f"/checkpoints/{team.name}")
        assert volumes[environment["volumeName"]]["spec"]["hostPath"]["path"] == str(TRAINING_ENV)


def test_a_volume_can_be_bound_only_by_its_claim(local_plan: Plan) -> None:
    for name, volume in local_plan.named("PersistentVolume").items():
        reference = volume["spec"]["claimRef"]
        claim = local_plan.named("PersistentVolumeClaim")[f"{reference['namespace']}/{reference['name']}"]
        assert claim["spec"]["volumeName"] == name


def test_volumes_are_retained_after_their_claims(local_plan: Plan) -> None:
    policies = {
        each["spec"]["persistentVolumeReclaimPolicy"]
        for each in local_plan.named("PersistentVolume").values()
    }
    assert policies == {"Retain"}


def test_a_new_teams_folders_are_created_by_a_new_job(local: Stack, local_plan: Plan, rendered: Path) -> None:
    more = local.model_copy(update={"teams": (*local.teams, TeamSpec(name="speech", queue="gpu"))})
    (before,) = local_plan.named("Job").values()
    (after,) = plan(more, rendered).named("Job").values()
    assert before["metadata"]["name"] != after["metadata"]["name"]
    assert "/data/checkpoints/speech" in after["spec"]["template"]["spec"]["initContainers"][0]["command"]


def keys(found: Plan, namespace: str) -> dict[str, str]:
    """Return the content of the Secret of a client, or of the store."""
    data = found.named("Secret")[f"{namespace}/{names.OBJECT_STORE}"]["data"]
    return {name: base64.b64decode(value).decode() for name, value in data.items()}


def test_every_team_has_separate_keys_and_the_stores_address(local: Stack, local_plan: Plan) -> None:
    store = keys(local_plan, names.STORAGE_NAMESPACE)
    teams = {team.name: keys(local_plan, names.team_namespace(team.name)) for team in local.teams}
    for name, client in teams.items():
        assert client.keys() - store.keys() == {"AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"}
        assert client["AWS_ACCESS_KEY_ID"] == f"team-{name}"
    secret_keys = {client["AWS_SECRET_ACCESS_KEY"] for client in (store, *teams.values())}
    assert len(secret_keys) == len(teams) + 1


def test_the_stores_users_are_its_teams_which_cannot_create_buckets(local: Stack, local_plan: Plan) -> None:
    data = local_plan.named("Secret")[f"{names.STORAGE_NAMESPACE}/{names.OBJECT_STORE_ACCOUNTS}"]["data"]
    known = json.loads(base64.b64decode(data["users.json"]))["accessAccounts"]
    assert set(known) == {f"team-{team.name}" for team in local.teams}
    for team in local.teams:
        client = keys(local_plan, names.team_namespace(team.name))
        found = known[client["AWS_ACCESS_KEY_ID"]]
        assert (found["secret"], found["role"]) == (client["AWS_SECRET_ACCESS_KEY"], "user")


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
