"""Deploys one pod per team that receives the code of `trainyard run` into the team's volume.

Team members may `exec` into the team's pods but not create pods, since those would count against no quota.
The pod itself only waits; a program that is started in it ends with its connection.
"""

from typing import Any

import pulumi

from infra.common import names
from infra.common.charts import Manifest
from infra.platform.base import RESTRICTED_CONTAINER, RESTRICTED_POD, Layer, PlatformContext, metadata
from infra.platform.namespaces import Namespaces
from infra.platform.storage.storage import StorageLayer

_LABELS = {"app.kubernetes.io/name": names.UPLOADS}
_WAIT = "import signal as s; s.pthread_sigmask(s.SIG_BLOCK, {s.SIGTERM}); s.sigwait({s.SIGTERM})"


class Uploads(Layer):
    """One Deployment per team, for which `up` does not wait, since its image may be large."""

    def __init__(
        self, context: PlatformContext, namespaces: Namespaces, storage: StorageLayer, parent: pulumi.Resource
    ) -> None:
        super().__init__(context, names.UPLOADS, {}, parent)
        for team in context.stack.teams:
            namespace = names.team_namespace(team.name)
            self.add(_deployment(context, namespace), [namespaces.by_name[namespace], *storage.folders])
        self.register_outputs({})


def _deployment(context: PlatformContext, namespace: str) -> Manifest:
    claim = {"claimName": names.CHECKPOINTS_CLAIM}
    pod: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {"nodeAffinity": _beside_the_operators(context)},
        "securityContext": RESTRICTED_POD,
        "containers": [_container(context)],
        "volumes": [{"name": names.CHECKPOINTS_CLAIM, "persistentVolumeClaim": claim}],
    }
    if context.settings.training_env:  # the packages of jobs, which `trainyard run --with` asks for
        env = names.TRAINING_ENV
        pod["volumes"].append({"name": env, "persistentVolumeClaim": context.claim(env, read_only=True)})
        mount = {"name": env, "mountPath": names.TRAINING_ENV_MOUNT, "readOnly": True}
        pod["containers"][0]["volumeMounts"].append(mount)
    about = metadata(names.UPLOADS, namespace)
    about["annotations"] = {"pulumi.com/skipAwait": "true"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": about,
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS}, "spec": pod},
        },
    }


def _container(context: PlatformContext) -> dict[str, Any]:
    return {
        "name": names.UPLOADS,
        "image": context.settings.training_image,
        "imagePullPolicy": context.settings.image_pull_policy,
        "command": ["python3", "-IS", "-c", _WAIT],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": names.CHECKPOINTS_CLAIM, "mountPath": names.CHECKPOINTS_MOUNT}],
    }


def _beside_the_operators(context: PlatformContext) -> dict[str, Any]:
    """A preference: a team's namespace admits no pod that must be on other pools than its queues'."""
    terms = [
        {"key": key, "operator": "In", "values": [value]} for key, value in context.system_selector.items()
    ]
    preference = {"weight": 100, "preference": {"matchExpressions": terms}}
    return {"preferredDuringSchedulingIgnoredDuringExecution": [preference]}
