from __future__ import annotations

from pathlib import Path

import pytest

from infra import names
from infra.spec import Stack
from infra.spec.queue import TeamSpec
from tests.infra.plan import TRAINING_ENV, Plan, plan


def test_each_team_has_a_shared_volume_of_its_own_and_the_environment_read_only(
    local: Stack, local_plan: Plan
) -> None:
    claims, volumes = local_plan.named("PersistentVolumeClaim"), local_plan.named("PersistentVolume")
    for team in local.teams:
        namespace = names.team_namespace(team.name)
        checkpoints = claims[f"{namespace}/{names.CHECKPOINTS_CLAIM}"]["spec"]
        environment = claims[f"{namespace}/{names.TRAINING_ENV_CLAIM}"]["spec"]
        assert checkpoints["accessModes"] == ["ReadWriteMany"]
        assert environment["accessModes"] == ["ReadOnlyMany"]
        folder = volumes[checkpoints["volumeName"]]["spec"]["hostPath"]["path"]
        assert folder.endswith(f"/checkpoints/{team.name}")
        assert volumes[environment["volumeName"]]["spec"]["hostPath"]["path"] == str(TRAINING_ENV)


def test_a_volume_can_be_claimed_by_its_own_claim_only(local_plan: Plan) -> None:
    for name, volume in local_plan.named("PersistentVolume").items():
        reference = volume["spec"]["claimRef"]
        claim = local_plan.named("PersistentVolumeClaim")[f"{reference['namespace']}/{reference['name']}"]
        assert claim["spec"]["volumeName"] == name


def test_data_outlives_its_claims(local_plan: Plan) -> None:
    policies = {
        each["spec"]["persistentVolumeReclaimPolicy"]
        for each in local_plan.named("PersistentVolume").values()
    }
    assert policies == {"Retain"}


def test_another_team_makes_its_folders_by_another_job(
    local: Stack, local_plan: Plan, rendered: Path
) -> None:
    more = local.model_copy(update={"teams": (*local.teams, TeamSpec(name="speech", queue="gpu"))})
    (before,) = local_plan.named("Job").values()
    (after,) = plan(more, rendered).named("Job").values()
    assert before["metadata"]["name"] != after["metadata"]["name"]
    assert "/data/checkpoints/speech" in after["spec"]["template"]["spec"]["containers"][0]["command"]


def test_every_team_has_the_object_stores_keys_and_address(local: Stack, local_plan: Plan) -> None:
    secrets = local_plan.named("Secret")
    store = secrets[f"{names.STORAGE_NAMESPACE}/{names.OBJECT_STORE}"]["data"]
    for team in local.teams:
        client = secrets[f"{names.team_namespace(team.name)}/{names.OBJECT_STORE}"]["data"]
        assert store.items() <= client.items()
        assert client.keys() - store.keys() == {"AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION"}


def test_the_bucket_is_a_folder_that_is_there_before_the_store_serves(local_plan: Plan) -> None:
    (job,) = local_plan.named("Job").values()
    assert "/data/object-store/checkpoints" in job["spec"]["template"]["spec"]["containers"][0]["command"]
    (store,) = (
        each
        for each in local_plan.resources
        if each.name.endswith("/object-store") and "Deployment" in each.type
    )
    assert any(":Job::" in urn for urn in store.dependencies)


def test_another_training_environment_is_another_volume(
    local: Stack, local_plan: Plan, rendered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def volume(found: Plan) -> str:
        claim = found.named("PersistentVolumeClaim")[f"team-research/{names.TRAINING_ENV_CLAIM}"]
        name: str = claim["spec"]["volumeName"]
        return name

    monkeypatch.setattr("tests.infra.plan.TRAINING_ENV", Path("/opt/other-env"))
    assert volume(plan(local, rendered)) != volume(local_plan)
