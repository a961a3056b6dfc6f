"""Claims and volumes of former training environments, on a recorded API."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kubernetes import client

from infra.clients import plain
from infra.common import names
from infra.common.artifacts import Artifacts
from trainyard.stack import environments

PRESENT, DEFAULT, WAITING, RUNNING, UNUSED, GONE = (
    names.training_env_claim(f"/{number}") for number in range(6)
)
RESEARCH, VISION = "team-research", "team-vision"
QUEUED = "/apis/kueue.x-k8s.io/v1beta2/workloads"


def using(claim: str) -> dict[str, Any]:
    source = {"persistentVolumeClaim": {"claimName": claim}}
    volumes = [{"name": "env", **source}, {"name": "job", "emptyDir": {}}]
    return {"metadata": {"namespace": RESEARCH}, "spec": {"podSets": [{"volumes": volumes}]}}


def volume(claim: str, namespace: str = RESEARCH, phase: str = "Bound") -> dict[str, Any]:
    return {
        "metadata": {"name": f"{namespace}/{claim}"},
        "status": {"phase": phase},
        "spec": {"claimRef": {"name": claim, "namespace": namespace}},
    }


class RecordedApi:
    """Answers the requests, and notes what is deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []
        claims = (PRESENT, DEFAULT, WAITING, RUNNING, UNUSED, GONE, names.CHECKPOINTS_CLAIM)
        self.objects = {
            "/api/v1/persistentvolumes": [*map(volume, claims), volume(RUNNING, VISION)],
            "/api/v1/namespaces": [{"metadata": {"name": VISION}}],
            "/api/v1/pods": [using(RUNNING)],
            QUEUED: [using(WAITING)],
            "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes": [using(DEFAULT)],
        }

    def get(self, _api: object, path: str) -> dict[str, Any]:
        if path not in self.objects:
            raise client.ApiException(status=404)
        return {"items": self.objects[path]}

    def delete_namespaced_persistent_volume_claim(self, name: str, namespace: str) -> None:
        if name == GONE:
            raise client.ApiException(status=404)
        self.deleted.append(f"claim {namespace}/{name}")

    def delete_persistent_volume(self, name: str) -> None:
        self.deleted.append(f"volume {name}")


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordedApi:
    api = RecordedApi()
    monkeypatch.setattr(plain, "get", api.get)
    monkeypatch.setattr(client, "CoreV1Api", lambda _: api)
    monkeypatch.setattr(Artifacts, "from_environment", lambda: SimpleNamespace(mounted_env=lambda: "/0"))
    return api


def test_what_nothing_in_the_namespace_uses_is_deleted_with_its_volume(api: RecordedApi) -> None:
    assert not environments.remove_unused(api)  # type: ignore[arg-type]
    unused = {f"{RESEARCH}/{UNUSED}", f"{VISION}/{RUNNING}"}
    volumes = {f"volume {each}" for each in (*unused, f"{RESEARCH}/{GONE}")}
    assert set(api.deleted) == {f"claim {each}" for each in unused} | volumes


def test_before_queues_are_defined_pods_and_the_present_environment_count(api: RecordedApi) -> None:
    del api.objects[QUEUED]
    environments.remove_unused(api)  # type: ignore[arg-type]
    kept = [PRESENT, DEFAULT, RUNNING]
    assert not {f"claim {RESEARCH}/{each}" for each in kept} & set(api.deleted)
    assert f"claim {RESEARCH}/{WAITING}" in api.deleted


def test_a_volume_of_the_present_environment_that_has_lost_its_claim_is_made_anew(api: RecordedApi) -> None:
    api.objects["/api/v1/persistentvolumes"] = [volume(PRESENT, VISION, "Released"), volume(PRESENT)]
    assert environments.remove_unused(api)  # type: ignore[arg-type]
    assert api.deleted == [f"claim {VISION}/{PRESENT}", f"volume {VISION}/{PRESENT}"]


def test_volumes_of_a_team_that_was_removed_are_deleted_and_the_state_is_complete(api: RecordedApi) -> None:
    api.objects["/api/v1/persistentvolumes"] = [volume(PRESENT, RESEARCH, "Released")]
    assert not environments.remove_unused(api)  # type: ignore[arg-type]
    assert f"volume {RESEARCH}/{PRESENT}" in api.deleted
