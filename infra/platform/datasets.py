"""Datasets: a Job for each, which copies it to the shared filesystem once and verifies it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pulumi

from infra import names
from infra.charts import Manifest
from infra.platform.base import (
    RESTRICTED_CONTAINER,
    RESTRICTED_POD,
    Context,
    Layer,
    metadata,
    python_environment,
)
from infra.platform.namespaces import Namespaces
from infra.platform.storage import DATA_CLAIM, DATASETS, Storage
from infra.spec.dataset import DatasetSpec

_MOUNT = "/data"
_RETRIES = 20
"""A source may be away for a while; each try goes on where the one before it stopped."""
_UNSIGNED = {
    "aws": {"AWS_SKIP_SIGNATURE": "true"},
    "gcp": {"GOOGLE_SKIP_SIGNATURE": "true"},
    "azure": {"AZURE_SKIP_SIGNATURE": "true"},
}
"""Cloud → variables by which the object store's client asks without keys."""


class Datasets(Layer):
    """Where folders of one filesystem are volumes, a dataset is there once; else once for each team."""

    def __init__(
        self,
        context: Context,
        namespaces: Namespaces,
        storage: Storage,
        *,
        shared: bool,
        parent: pulumi.Resource,
    ) -> None:
        datasets = context.stack.datasets
        inputs = {"datasets": [dataset.model_dump(mode="json") for dataset in datasets]}
        super().__init__(context, "datasets", inputs, parent)
        if shared:
            places = [(names.STORAGE_NAMESPACE, DATA_CLAIM, f"{_MOUNT}/{DATASETS}")]
        else:
            teams = context.stack.teams
            places = [(names.team_namespace(team.name), names.DATASETS_CLAIM, _MOUNT) for team in teams]
        for namespace, claim, out in places:
            for dataset in datasets:
                job = _job(context, dataset, namespace, claim=claim, out=out)
                self.add(job, [namespaces.by_name[namespace], *storage.folders])
        self.register_outputs(
            {"paths": {each.name: f"{names.DATASETS_MOUNT}/{each.path}" for each in datasets}}
        )


def _job(context: Context, dataset: DatasetSpec, namespace: str, *, claim: str, out: str) -> Manifest:
    pod = _pod(context, dataset, claim, out)
    # A Job cannot be changed: another source, or another image, makes another Job, which finds what is there.
    digest = hashlib.sha256(json.dumps(pod, sort_keys=True).encode()).hexdigest()[:8]
    job = metadata(
        names.fit(f"dataset-{dataset.name}-{digest}"), namespace, labels={names.DATASET_LABEL: dataset.name}
    )
    # Terabytes take hours; `trainyard submit` asks whether they are there.
    job["annotations"] = {"pulumi.com/skipAwait": "true"}
    labels = context.settings.pod_labels if dataset.by_identity else {}
    template = {"metadata": {"labels": dict(labels)}, "spec": pod} if labels else {"spec": pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": job,
        "spec": {"backoffLimit": _RETRIES, "template": template},
    }


def _pod(context: Context, dataset: DatasetSpec, claim: str, out: str) -> dict[str, Any]:
    source = dataset.source if "://" in dataset.source else f"{_MOUNT}{dataset.source}"
    # The former name of trainyard_train.data.stage: a stack may pin an image that has no other.
    command = ["python3", "-m", "training.stage", "fetch", source, f"{out}/{dataset.name}"]
    limits = ["--digest", dataset.digest, "--max-gib", str(dataset.size_gib)]
    variables = python_environment(context.settings)
    mounts = [{"name": claim, "mountPath": _MOUNT}, *_environment_mounts(context)]
    if dataset.account_name:
        variables["AZURE_STORAGE_ACCOUNT_NAME"] = dataset.account_name
    if dataset.public and dataset.cloud:
        variables |= _UNSIGNED[dataset.cloud]
    container = {
        "name": "stage",
        "image": context.settings.training_image,
        "imagePullPolicy": context.settings.image_pull_policy,
        "command": [*command, *limits],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        **({"envFrom": [{"secretRef": {"name": dataset.secret}}]} if dataset.secret else {}),
        # Eight threads hold a part of 32 MiB each.
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": mounts,
    }
    mounted = {mount["name"]: mount.get("readOnly", False) for mount in mounts}
    selector, tolerations = _where(context)
    return {
        "restartPolicy": "Never",
        "nodeSelector": selector,
        **({"tolerations": tolerations} if tolerations else {}),
        "securityContext": RESTRICTED_POD,
        "containers": [container],
        "volumes": [
            {"name": name, "persistentVolumeClaim": {"claimName": name, "readOnly": read_only}}
            for name, read_only in mounted.items()
        ],
    }


def _environment_mounts(context: Context) -> list[dict[str, Any]]:
    if not context.settings.training_env:
        return []
    return [{"name": names.TRAINING_ENV_CLAIM, "mountPath": names.TRAINING_ENV_MOUNT, "readOnly": True}]


def _where(context: Context) -> tuple[dict[str, str], list[dict[str, str]]]:
    """A pool for work beside the jobs, where the stack has one that stays; else the operators' pool."""
    for pool in context.cpu_pools:
        return pool.selector, pool.tolerations
    return context.system_selector, []
