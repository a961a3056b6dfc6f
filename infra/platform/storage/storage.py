"""Declares the cluster's storage: storage classes, volumes and claims, annotations of service accounts, and
the Job that creates the volumes' folders.

Each team has a claim for its checkpoints, and further claims for datasets, the bucket, the training
environment and paths of the host where the stack has them. The platform has claims for its data and for logs.
The Job also writes the bucket policy if the platform serves the object store.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pulumi

from infra.common import names
from infra.common.bucket_policy import bucket_policy
from infra.common.charts import Manifest
from infra.common.kubernetes_objects import FORCE, KubernetesObject, ObjectPatch
from infra.platform.base import JOB_USER, RESTRICTED_CONTAINER, Layer, PlatformContext, metadata
from infra.platform.fabric import host_claim, host_paths
from infra.platform.namespaces import Namespaces
from infra.platform.programs import program
from infra.platform.storage.store_teams import access_key
from infra.targets.base import ClusterOutputs, StorageClass, VolumeSource

STORAGE_CLASS = "shared"
DATA_CLAIM = "data"
STORE_MOUNT = {"name": DATA_CLAIM, "mountPath": "/data", "subPath": names.OBJECT_STORE}
"""Folder of the shared filesystem with the object store's data."""
_SHARED = (DATA_CLAIM, names.CHECKPOINTS_CLAIM, names.DATASETS_CLAIM, names.LOGS_CLAIM)
"""Claims of folders of the shared filesystem."""
DATASETS = "datasets"
"""Folder of the shared filesystem with staged datasets."""
DATASET_VIEWS = "dataset-views"
"""Folder with one folder per team that links the team's datasets, where not all teams may read all."""
LOGS = "logs"
"""Folder with one folder per team for the logs of the team's pods."""
_LOGS_GIB = 10
"""Size of the logs' volume where logs have a separate filesystem."""
Access = Literal["ReadWriteMany", "ReadOnlyMany"]


@dataclass(frozen=True)
class _Volume:
    """A folder of the nodes or of the shared filesystem, as a volume with one claim."""

    claim: str
    namespace: str
    source: Mapping[str, Any]
    """Volume source of the PersistentVolume."""
    size_gib: int
    access: Access
    revision: str = ""
    """Part of the volume's name, since a bound volume can be neither changed nor removed."""
    retained: bool = False
    """Whether volume and claim remain when the stack no longer has them, for the pods that have the claim."""


class StorageLayer(Layer):
    """Volumes and claims: static where the target gives a volume source, else provisioned by a class.

    Pods use claims only, since Pod Security refuses host paths in pods.
    """

    def __init__(
        self,
        context: PlatformContext,
        namespaces: Namespaces,
        outputs: ClusterOutputs,
        parent: pulumi.Resource,
        drivers: Sequence[pulumi.Resource] = (),
    ) -> None:
        spec = context.stack.storage
        super().__init__(context, "storage", {"spec": spec.model_dump(mode="json")}, parent)
        self._stack_name, self._namespaces = context.stack.name, namespaces
        self._filesystem = _name_of(context)
        self._class = self.add(_storage_class())
        self.folders: list[pulumi.Resource] = []
        if outputs.volume_source:
            data_claim = self._claim(_data(context, outputs.volume_source))
            self.folders.append(self.add(_make_folders(context), [data_claim, *drivers]))
            if outputs.second_source:
                source, name = outputs.second_source(""), _name_of(context, "second_filesystem")
                self._claim(_Volume("second", names.STORAGE_NAMESPACE, source, 1, "ReadWriteMany", name))
        else:
            self._shared_claims(context, outputs.shared_class)
        for volume in _team_volumes(context, outputs):
            self._claim(volume)
        if context.stack.datasets and context.settings.training_env:
            self._claim(_training_env(context, names.STORAGE_NAMESPACE))
        if context.stack.logs.kept:
            self._logs_claim(outputs)
        for namespace, given in outputs.service_accounts.items():
            options = context.access.options(self, [namespaces.by_name[namespace]])
            about = {"name": "default", "namespace": namespace, "annotations": {**FORCE, **given}}
            annotated = ObjectPatch("ServiceAccount", about, options)
            if namespace == names.STORAGE_NAMESPACE:  # before the first pod, which needs its cloud identity
                self.folders.append(annotated)
        for storage_class in outputs.storage_classes:
            self.add(_dynamic_class(storage_class))
        self.register_outputs({"storageClass": STORAGE_CLASS})

    def _shared_claims(self, context: PlatformContext, storage_class: str) -> None:
        """A separate filesystem for each team; it remains when the stack is destroyed."""
        sizes = _shared_sizes(context)
        retained = pulumi.ResourceOptions(retain_on_delete=True)
        for team in context.stack.teams:
            namespace = names.team_namespace(team.name)
            for name, size in sizes.items():
                claim = _shared_claim(name, namespace, size, storage_class)
                self.add(claim, [self._namespaces.by_name[namespace]], retained)

    def _logs_claim(self, outputs: ClusterOutputs) -> None:
        """One volume for all teams, which no pod of a team mounts."""
        namespace = names.LOGS_NAMESPACE
        if outputs.volume_source:
            source = outputs.volume_source(LOGS)
            self._claim(_Volume(names.LOGS_CLAIM, namespace, source, _LOGS_GIB, "ReadWriteMany"))
        else:
            claim = _shared_claim(names.LOGS_CLAIM, namespace, _LOGS_GIB, outputs.shared_class)
            retained = pulumi.ResourceOptions(retain_on_delete=True)
            self.add(claim, [self._namespaces.by_name[namespace]], retained)

    def _claim(self, volume: _Volume) -> KubernetesObject:
        namespace = self._namespaces.by_name[volume.namespace]
        of = self._filesystem if volume.claim in _SHARED else ""
        parts = (self._stack_name, volume.namespace, volume.claim, volume.revision, of)
        name = names.fit("-".join(part for part in parts if part))
        retained = pulumi.ResourceOptions(retain_on_delete=volume.retained)
        made = self.add(_persistent_volume(name, volume), [self._class], retained)
        # A static volume is as large as the filesystem beneath it, and its claim cannot be resized.
        options = pulumi.ResourceOptions(ignore_changes=["spec.resources"], retain_on_delete=volume.retained)
        return self.add(_persistent_volume_claim(name, volume), [made, namespace], options)


def _name_of(context: PlatformContext, key: str = "filesystem") -> str:
    """Name of a filesystem, which its volumes have in theirs; empty for none."""
    return getattr(getattr(context.stack.target, key, None), "name", None) or ""


def _shared_sizes(context: PlatformContext) -> dict[str, int]:
    sizes = {names.CHECKPOINTS_CLAIM: context.stack.storage.checkpoints.size_gib}
    return {**sizes, names.DATASETS_CLAIM: _datasets_gib(context)} if context.stack.datasets else sizes


def _datasets_gib(context: PlatformContext) -> int:
    return sum(dataset.size_gib for dataset in context.stack.datasets)


def _data(context: PlatformContext, source: VolumeSource) -> _Volume:
    spec = context.stack.storage
    teams = spec.checkpoints.size_gib * len(context.stack.teams)
    size = (spec.object_store.size_gib or 0) + teams + _datasets_gib(context)
    return _Volume(DATA_CLAIM, names.STORAGE_NAMESPACE, source(""), size, "ReadWriteMany")


def _team_volumes(context: PlatformContext, outputs: ClusterOutputs) -> Iterator[_Volume]:
    size = context.stack.storage.checkpoints.size_gib
    for team in context.stack.teams:
        namespace = names.team_namespace(team.name)
        if outputs.volume_source:
            folder = outputs.volume_source(names.team_folder(team.name))
            yield _Volume(names.CHECKPOINTS_CLAIM, namespace, folder, size, "ReadWriteMany")
        if outputs.volume_source and context.stack.datasets:
            yield _datasets_volume(context, outputs.volume_source, team.name)
        if context.settings.training_env:
            yield _training_env(context, namespace)
        if outputs.bucket_source:
            bucket = outputs.bucket_source(names.team_folder(team.name))
            yield _Volume(names.BUCKET_CLAIM, namespace, bucket, size, "ReadWriteMany")
        yield from _host_volumes(context, namespace)


def datasets_have_readers(context: PlatformContext) -> bool:
    """Whether a dataset names the teams that may read it."""
    return any(dataset.teams is not None for dataset in context.stack.datasets)


def _datasets_volume(context: PlatformContext, source: VolumeSource, team: str) -> _Volume:
    """All datasets, or those that the team may read: pods reach nothing outside the mounted folder."""
    own = datasets_have_readers(context)
    folder = source(f"{DATASET_VIEWS}/{team}") if own else _same_folder(source, DATASETS, team)
    size, revision = _datasets_gib(context), "own" if own else ""
    namespace = names.team_namespace(team)
    return _Volume(names.DATASETS_CLAIM, namespace, folder, size, "ReadOnlyMany", revision)


def claimed_gib(context: PlatformContext, outputs: ClusterOutputs) -> int:
    """Return the total size of the platform's own claims in the namespace of each team."""
    teams = max(1, len(context.stack.teams))
    static = sum(volume.size_gib for volume in _team_volumes(context, outputs)) // teams
    if outputs.volume_source:
        return static
    return static + sum(_shared_sizes(context).values())


def _same_folder(source: VolumeSource, path: str, team: str) -> Mapping[str, Any]:
    """A folder that all teams share, as a separate volume per team.

    To a node, volumes with the same handle are one volume, also of different teams: each team's handle has
    another spelling of the path. EFS's driver, which reads a path from the handle, normalizes it first.
    """
    found = dict(source(path))
    if "csi" in found:
        handle = source(f"{team}/../{path}")["csi"]["volumeHandle"]
        found["csi"] = {**found["csi"], "volumeHandle": handle}
    return found


def _training_env(context: PlatformContext, namespace: str) -> _Volume:
    environment = {"hostPath": {"path": context.settings.training_env, "type": "Directory"}}
    # Kubernetes requires a size, but does not enforce it for a static volume.
    # Jobs keep theirs: `up` deletes it later (trainyard/stack/environments.py), the cluster with its end.
    retained = context.access.deleted_with is not None
    return _Volume(context.training_env_claim, namespace, environment, 1, "ReadOnlyMany", retained=retained)


def _host_volumes(context: PlatformContext, namespace: str) -> Iterator[_Volume]:
    """Paths of the node that fabrics of the stack give to pods."""
    paths = {path: each for fabric in context.fabrics for path, each in host_paths(fabric).items()}
    for path, each in paths.items():
        access: Access = "ReadWriteMany" if each.writable else "ReadOnlyMany"
        source = {"hostPath": {"path": path, "type": "Directory"}}
        yield _Volume(host_claim(path), namespace, source, 1, access)


def _digest(parts: list[str]) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]


def _shared_claim(name: str, namespace: str, size_gib: int, storage_class: str) -> Manifest:
    """A claim for which the class creates a volume; its files belong to the pods' `fsGroup`."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(name, namespace),
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": f"{size_gib}Gi"}},
        },
    }


def _storage_class() -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata(STORAGE_CLASS),
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate",
        "reclaimPolicy": "Retain",
    }


def _dynamic_class(spec: StorageClass) -> Manifest:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata(spec.name),
        "provisioner": spec.provisioner,
        "parameters": dict(spec.parameters),
        # A disk is in one zone, so it is created after its pod is scheduled.
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Delete",
    }


def _persistent_volume(name: str, volume: _Volume) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata(name),
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": f"{volume.size_gib}Gi"},
            "accessModes": [volume.access],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": volume.namespace,
                "name": volume.claim,
            },
            **volume.source,
        },
    }


def _persistent_volume_claim(name: str, volume: _Volume) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(volume.claim, volume.namespace),
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "volumeName": name,
            "accessModes": [volume.access],
            "resources": {"requests": {"storage": f"{volume.size_gib}Gi"}},
        },
    }


def _bucket_policy(context: PlatformContext) -> dict[str, Any]:
    """Give the bucket the policy of the teams that the stack has; the store asks for it at every request."""
    bucket = context.stack.storage.object_store.bucket
    policy = bucket_policy(bucket, {team.name: access_key(team.name) for team in context.stack.teams})
    return {
        "name": "bucket-policy",
        "image": context.settings.training_image,
        "imagePullPolicy": context.settings.image_pull_policy,
        "command": ["python3", "-c", program("write_bucket_policy.py"), f"/data/{bucket}", policy],
        "securityContext": {**RESTRICTED_CONTAINER, "runAsUser": JOB_USER, "runAsGroup": JOB_USER},
        "volumeMounts": [dict(STORE_MOUNT)],
    }


def _make_folders(context: PlatformContext) -> Manifest:
    """A Job that makes the folders under the data volume, owned by the user of jobs.

    The kubelet would make them owned by root, and host folders take no `fsGroup`.
    """
    bucket = f"{names.OBJECT_STORE}/{context.stack.storage.object_store.bucket}"
    store = [names.OBJECT_STORE, bucket] if context.settings.serves_object_store else []
    datasets = [DATASETS] if context.stack.datasets else []
    if datasets_have_readers(context):
        datasets += [DATASET_VIEWS, *(f"{DATASET_VIEWS}/{team.name}" for team in context.stack.teams)]
    logs = [LOGS, *(f"{LOGS}/{team.name}" for team in context.stack.teams)] if context.stack.logs.kept else []
    folders = [*store, *datasets, *logs, *(names.team_folder(team.name) for team in context.stack.teams)]
    owner = str(JOB_USER)
    command = [
        "install",
        "-d",
        "-m",
        "0750",
        "-o",
        owner,
        "-g",
        owner,
        *(f"/data/{each}" for each in folders),
    ]
    container = {
        "name": "install",
        "image": context.settings.training_image,
        "imagePullPolicy": context.settings.image_pull_policy,
        "command": command,
        "securityContext": {
            "runAsUser": 0,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE", "FOWNER"]},
        },
        "volumeMounts": [{"name": DATA_CLAIM, "mountPath": "/data"}],
    }
    policy = [_bucket_policy(context)] if context.settings.serves_object_store else []
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": context.system_selector,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **({"initContainers": [container]} if policy else {}),
        "containers": policy or [container],
        "volumes": [{"name": DATA_CLAIM, "persistentVolumeClaim": {"claimName": DATA_CLAIM}}],
    }
    # A Job is immutable: other folders, or another image, create a new Job.
    parts = (*command, *(each["command"][-1] for each in policy), *filter(None, [_name_of(context)]))
    digest = _digest([str(container["image"]), *parts])
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(f"folders-{digest}", names.STORAGE_NAMESPACE),
        "spec": {"backoffLimit": 3, "template": {"spec": pod}},
    }
