"""Claims and volumes of former training environments, on a recorded API."""

from types import SimpleNamespace
from typing import Any

import pytest

from infra.common import names
from infra.common.artifacts import Artifacts
from tests.trainyard.jobs.fake_api import FakeApi
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


class RecordedApi(FakeApi):
    """Notes what is deleted."""

    def __init__(self) -> None:
        claims = (PRESENT, DEFAULT, WAITING, RUNNING, UNUSED, GONE, names.CHECKPOINTS_CLAIM)
        super().__init__(
            {
                "/api/v1/persistentvolumes": [*map(volume, claims), volume(RUNNING, VISION)],
                "/api/v1/namespaces": [{"metadata": {"name": VISION}}],
                "/api/v1/pods": [using(RUNNING)],
                QUEUED: [using(WAITING)],
                "/apis/trainer.kubeflow.org/v1alpha1/clustertrainingruntimes": [using(DEFAULT)],
            }
        )

    @property
    def deleted(self) -> list[str]:
        paths = [path.split("/")[3:] for method, path, _ in self.asked if method == "DELETE"]
        return [
            f"claim {words[1]}/{words[3]}" if words[0] == "namespaces" else f"volume {'/'.join(words[1:])}"
            for words in paths
        ]


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> RecordedApi:
    monkeypatch.setattr(Artifacts, "from_environment", lambda: SimpleNamespace(mounted_env=lambda: "/0"))
    return RecordedApi()


def test_what_nothing_in_the_namespace_uses_is_deleted_with_its_volume(api: RecordedApi) -> None:
    assert not environments.remove_unused(api)  # type: ignore[arg-type]
    unused = [f"{RESEARCH}/{UNUSED}", f"{VISION}/{RUNNING}", f"{RESEARCH}/{GONE}"]
    assert set(api.deleted) == {f"{kind} {each}" for kind in ("claim", "volume") for each in unused}


def test_before_queues_are_defined_pods_and_the_present_environment_count(api: RecordedApi) -> None:
    del api.lists[QUEUED]
    environments.remove_unused(api)  # type: ignore[arg-type]
    kept = [PRESENT, DEFAULT, RUNNING]
    assert not {f"claim {RESEARCH}/{each}" for each in kept} & set(api.deleted)
    assert f"claim {RESEARCH}/{WAITING}" in api.deleted


def test_a_volume_of_the_present_environment_that_has_lost_its_claim_is_made_anew(api: RecordedApi) -> None:
    api.lists["/api/v1/persistentvolumes"] = [volume(PRESENT, VISION, "Released"), volume(PRESENT)]
    assert environments.remove_unused(api)  # type: ignore[arg-type]
    assert api.deleted == [f"claim {VISION}/{PRESENT}", f"volume {VISION}/{PRESENT}"]


def test_volumes_of_a_team_that_was_removed_are_deleted_and_the_state_is_complete(api: RecordedApi) -> None:
    api.lists["/api/v1/persistentvolumes"] = [volume(PRESENT, RESEARCH, "Released")]
    assert not environments.remove_unused(api)  # type: ignore[arg-type]
    assert f"volume {RESEARCH}/{PRESENT}" in api.deleted
