"""Deploys versitygw, an S3 server, over a folder of the data volume, with keys for each team."""

import base64
from collections.abc import Mapping
from functools import partial
from typing import Any

import pulumi

from infra.common import names
from infra.common.charts import Manifest
from infra.common.kubernetes_objects import not_awaited
from infra.platform.base import RESTRICTED_CONTAINER, RESTRICTED_POD, Layer, PlatformContext, metadata
from infra.platform.namespaces import Namespaces
from infra.platform.storage.storage import DATA_CLAIM, STORE_MOUNT, StorageLayer
from infra.platform.storage.store_teams import access_key, accounts, secret_key
from infra.stackfile import Stack

_LABELS = {"app.kubernetes.io/name": names.OBJECT_STORE}
_ACCESS_KEY, _SECRET_KEY = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"
REGION = "us-east-1"
"""Region for signing S3 requests: the default of versitygw and of the clients."""


def endpoint() -> str:
    """URL of the store inside the cluster."""
    return f"http://{names.OBJECT_STORE}.{names.STORAGE_NAMESPACE}.svc:{names.OBJECT_STORE_PORT}"


Keys = tuple[pulumi.Output[str], pulumi.Output[str]]


_ACCOUNTS_FOLDER = "/etc/versitygw"
_ACCOUNTS_FILE = "users.json"


class ObjectStoreLayer(Layer):
    """Deployment, Service and Secrets of the store; a bucket is a folder of the data volume.

    Each team is a user with separate keys, which give access to the team's folder of the bucket.
    """

    def __init__(
        self,
        context: PlatformContext,
        namespaces: Namespaces,
        storage: StorageLayer,
        *,
        keys: Keys,
        parent: pulumi.Resource,
    ) -> None:
        spec = context.stack.storage.object_store
        super().__init__(context, names.OBJECT_STORE, {"spec": spec.model_dump(mode="json")}, parent)
        namespace = namespaces.by_name[names.STORAGE_NAMESPACE]
        data = {_ACCESS_KEY: keys[0].apply(_base64), _SECRET_KEY: keys[1].apply(_base64)}
        # The store retains its first keys: some targets generate new ones on every run.
        secret = self.add(
            _secret(names.STORAGE_NAMESPACE, data),
            [namespace],
            pulumi.ResourceOptions(ignore_changes=["data"]),
        )
        root: pulumi.Output[str] = pulumi.Output.secret(secret.data.apply(_root_key))
        known = {_ACCOUNTS_FILE: root.apply(partial(_accounts, context.stack))}
        users = self.add(_secret(names.STORAGE_NAMESPACE, known, names.OBJECT_STORE_ACCOUNTS), [namespace])
        deployment = self.add(_deployment(context), [secret, users, *storage.folders])
        self.service = self.add(not_awaited(_service()), [namespace, deployment])
        for team in context.stack.teams:
            of_team = names.team_namespace(team.name)
            keys_of_team = root.apply(partial(_secret_key, context.stack, team.name))
            self.add(_secret(of_team, _client_data(team.name, keys_of_team)), [namespaces.by_name[of_team]])
        self.register_outputs({"endpoint": endpoint(), "bucket": spec.bucket})


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _root_key(data: Mapping[str, str]) -> str:
    """The store's own secret key, as the cluster has it."""
    return base64.b64decode(data[_SECRET_KEY]).decode()


def _accounts(stack: Stack, root: str) -> str:
    return _base64(accounts(stack, root))


def _secret_key(stack: Stack, team: str, root: str) -> str:
    return _base64(secret_key(stack, team, root))


def _client_data(team: str, key: pulumi.Output[str]) -> dict[str, pulumi.Input[str]]:
    """Return what an S3 client of a team reads: the team's keys, and where the store is."""
    keys: dict[str, pulumi.Input[str]] = {_ACCESS_KEY: _base64(access_key(team)), _SECRET_KEY: key}
    return {**keys, "AWS_ENDPOINT_URL": _base64(endpoint()), "AWS_DEFAULT_REGION": _base64(REGION)}


def _secret(
    namespace: str, data: Mapping[str, pulumi.Input[str]], name: str = names.OBJECT_STORE
) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(name, namespace),
        "type": "Opaque",
        "data": dict(data),
    }


def _deployment(context: PlatformContext) -> Manifest:
    template = {
        "metadata": {"labels": _LABELS},
        "spec": {
            "nodeSelector": context.system_selector,
            "automountServiceAccountToken": False,
            "securityContext": RESTRICTED_POD,
            "containers": [_container(context)],
            "volumes": [
                {"name": DATA_CLAIM, "persistentVolumeClaim": {"claimName": DATA_CLAIM}},
                {"name": "accounts", "secret": {"secretName": names.OBJECT_STORE_ACCOUNTS}},
            ],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(names.OBJECT_STORE, names.STORAGE_NAMESPACE),
        "spec": {
            "replicas": 1,
            # Two servers over one folder would not see each other's locks.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": _LABELS},
            "template": template,
        },
    }


def _container(context: PlatformContext) -> dict[str, Any]:
    variables = {"ROOT_ACCESS_KEY": _ACCESS_KEY, "ROOT_SECRET_KEY": _SECRET_KEY}
    port = names.OBJECT_STORE_PORT
    return {
        "name": names.OBJECT_STORE,
        "image": context.artifacts.images["versitygw"],
        "imagePullPolicy": context.settings.image_pull_policy,
        "args": [
            *("--port", f":{port}", "--region", REGION, "--health", "/healthz"),
            *("--iam-dir", _ACCOUNTS_FOLDER),
            *("posix", "/data"),
        ],
        "env": [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": names.OBJECT_STORE, "key": key}}}
            for name, key in variables.items()
        ],
        "ports": [{"name": "s3", "containerPort": port}],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": "s3"}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "volumeMounts": [
            dict(STORE_MOUNT),
            {"name": "accounts", "mountPath": _ACCOUNTS_FOLDER, "readOnly": True},
        ],
    }


def _service() -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(names.OBJECT_STORE, names.STORAGE_NAMESPACE),
        "spec": {
            "selector": _LABELS,
            "ports": [{"name": "s3", "port": names.OBJECT_STORE_PORT, "targetPort": "s3"}],
        },
    }
