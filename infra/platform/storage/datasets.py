"""Jobs that stage each dataset: copy it from its source, verify its digest, and link it for its teams if the
stack restricts who may read datasets.

Where teams share one filesystem, each dataset is staged once. Elsewhere it is staged once for each of its
teams, on the team's volume and without links.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pulumi

from infra.common import names
from infra.common.charts import Manifest
from infra.platform.base import (
    RESTRICTED_CONTAINER,
    RESTRICTED_POD,
    Layer,
    PlatformContext,
    metadata,
    python_environment,
)
from infra.platform.namespaces import Namespaces
from infra.platform.programs import program
from infra.platform.storage.storage import (
    DATA_CLAIM,
    DATASET_VIEWS,
    DATASETS,
    StorageLayer,
    datasets_have_readers,
)
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.queue import DEFAULT_LOCAL_QUEUE, TeamSpec

_MOUNT = "/data"
_RETRIES = 20
"""Number of retries: a source may be unavailable for a while, and each retry continues where the last one
stopped."""
_UNSIGNED = {
    "aws": {"AWS_SKIP_SIGNATURE": "true"},
    "gcp": {"GOOGLE_SKIP_SIGNATURE": "true"},
    "azure": {"AZURE_SKIP_SIGNATURE": "true"},
}
"""Cloud → variables that make its object store client send unsigned requests."""
_QUEUED = {"kueue.x-k8s.io/queue-name": DEFAULT_LOCAL_QUEUE}
"""Label with the queue of a Job in a team's namespace, where every job has one."""


@dataclass(frozen=True)
class StagingVolume:
    """Namespace and volume of the Jobs that stage datasets."""

    namespace: str
    claim: str
    out: str
    """Path of the datasets' folder in the Job."""
    team: TeamSpec | None = None
    """Team whose namespace has the volume; None for the platform's own namespace."""

    def takes(self, dataset: DatasetSpec) -> bool:
        """Whether a dataset is staged here."""
        return self.team is None or dataset.is_read_by(self.team.name)


SHARED = StagingVolume(names.STORAGE_NAMESPACE, DATA_CLAIM, f"{_MOUNT}/{DATASETS}")
"""Staging volume of the platform, for targets on which folders of one filesystem are volumes."""


def staging_volume_of(team: TeamSpec) -> StagingVolume:
    """Return where datasets of a team are staged that has a separate filesystem."""
    return StagingVolume(names.team_namespace(team.name), names.DATASETS_CLAIM, _MOUNT, team)


class Datasets(Layer):
    """Staging Jobs: one per dataset if all volumes are on one filesystem, else one per dataset and team."""

    def __init__(
        self,
        context: PlatformContext,
        namespaces: Namespaces,
        storage: StorageLayer,
        *,
        shared: bool,
        queues: Sequence[pulumi.Resource],
        parent: pulumi.Resource,
    ) -> None:
        datasets = context.stack.datasets
        inputs = {"datasets": [dataset.model_dump(mode="json") for dataset in datasets]}
        super().__init__(context, "datasets", inputs, parent)
        stagings = [SHARED] if shared else [staging_volume_of(team) for team in context.stack.teams]
        for staging in stagings:
            before = [namespaces.by_name[staging.namespace], *storage.folders]
            for dataset in filter(staging.takes, datasets):
                self.add(staging_job(context, dataset, staging), [*before, *(queues if staging.team else ())])
        self.register_outputs(
            {"paths": {each.name: f"{names.DATASETS_MOUNT}/{each.path}" for each in datasets}}
        )


def staging_job(context: PlatformContext, dataset: DatasetSpec, staging: StagingVolume) -> Manifest:
    """Return the Job that stages a dataset; in a team's namespace it follows the rules of the team's Jobs."""
    pod = _pod(context, dataset, staging)
    # A Job is immutable: another source or image creates a new Job, which continues with the existing files.
    digest = hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:8]
    own = {names.DATASET_LABEL: dataset.name, **(_QUEUED if _is_queued(context, staging) else {})}
    job = metadata(names.fit(f"dataset-{dataset.name}-{digest}"), staging.namespace, labels=own)
    # Terabytes take hours; `trainyard run` checks whether the dataset is staged.
    job["annotations"] = {"pulumi.com/skipAwait": "true"}
    labels = context.settings.pod_labels if dataset.uses_identity else {}
    template = {"metadata": {"labels": dict(labels)}, "spec": pod} if labels else {"spec": pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": job,
        "spec": {"backoffLimit": _RETRIES, "template": template},
    }


def _is_queued(context: PlatformContext, staging: StagingVolume) -> bool:
    return staging.team is not None and context.stack.operators.kueue != "off"


def _pod(context: PlatformContext, dataset: DatasetSpec, staging: StagingVolume) -> dict[str, Any]:
    mounts = [{"name": staging.claim, "mountPath": _MOUNT}, *_environment_mounts(context)]
    stage = _stage(context, dataset, staging.out, mounts)
    mounted = {mount["name"]: mount.get("readOnly", False) for mount in mounts}
    views = staging.team is None and datasets_have_readers(context)
    return {
        "restartPolicy": "Never",
        **_where(context, staging),
        "securityContext": RESTRICTED_POD,
        **({"initContainers": [stage]} if views else {}),
        "containers": [_show(context, dataset, stage) if views else stage],
        "volumes": [
            {"name": name, "persistentVolumeClaim": context.claim(name, read_only=read_only)}
            for name, read_only in mounted.items()
        ],
    }


def _show(context: PlatformContext, dataset: DatasetSpec, stage: dict[str, Any]) -> dict[str, Any]:
    """Return the container that links a staged dataset into its readers' folders, and out of all others."""
    teams = [team.name for team in context.stack.teams]
    folders = [f"{_MOUNT}/{DATASETS}", f"{_MOUNT}/{DATASET_VIEWS}", dataset.folder]
    named = [" ".join(team for team in teams if dataset.is_read_by(team) is reads) for reads in (True, False)]
    command = ["python3", "-c", program("show_dataset.py"), *folders, *named]
    inherited = {key: value for key, value in stage.items() if key != "envFrom"}
    return {**inherited, "name": "show", "command": command}


def _stage(
    context: PlatformContext, dataset: DatasetSpec, out: str, mounts: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    source = dataset.source if "://" in dataset.source else f"{_MOUNT}{dataset.source}"
    command = ["python3", "-m", "trainyard_train.data.stage", "fetch", source, f"{out}/{dataset.name}"]
    limits = ["--digest", dataset.digest, "--max-gib", str(dataset.size_gib)]
    variables = python_environment(context.settings)
    if dataset.account_name:
        variables["AZURE_STORAGE_ACCOUNT_NAME"] = dataset.account_name
    if dataset.public and dataset.cloud:
        variables |= _UNSIGNED[dataset.cloud]
    return {
        "name": "stage",
        "image": context.settings.training_image,
        "imagePullPolicy": context.settings.image_pull_policy,
        "command": [*command, *limits],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        **({"envFrom": [{"secretRef": {"name": dataset.secret}}]} if dataset.secret else {}),
        # Eight threads hold a part of 32 MiB each.
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": list(mounts),
    }


def _environment_mounts(context: PlatformContext) -> list[dict[str, Any]]:
    if not context.settings.training_env:
        return []
    return [{"name": names.TRAINING_ENV, "mountPath": names.TRAINING_ENV_MOUNT, "readOnly": True}]


def _where(context: PlatformContext, staging: StagingVolume) -> dict[str, Any]:
    """Choose the Job's nodes: a pool for work beside the jobs if the stack has one, else the operators' pool.

    In a team's namespace its queue chooses, for the operators' pool takes no team's pods.
    """
    if staging.team:
        return {}
    for pool in context.cpu_pools:
        tolerations = {"tolerations": pool.tolerations} if pool.tolerations else {}
        return {"nodeSelector": pool.selector, **tolerations}
    return {"nodeSelector": context.system_selector}
