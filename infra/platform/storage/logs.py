"""Stores team pods' logs on the shared filesystem (OpenTelemetry Collector), with pods to read them and a
CronJob that deletes old ones.

On each node the OpenTelemetry Collector copies the files that the kubelet writes, line by line and unchanged,
into `<team>/<pod>_<uid>_<node>/<container>.<restart>.log`. It needs no key, no network and no root: the
kubelet's files are readable by its group. The members of a team read them by a pod that mounts the team's
folder alone, and in which they may `exec` (`role_bindings.py`).
"""

from collections.abc import Mapping
from typing import Any

import pulumi
import yaml

from infra.common import names
from infra.common.charts import Manifest
from infra.common.kubernetes_objects import not_awaited
from infra.platform.base import RESTRICTED_CONTAINER, RESTRICTED_POD, Layer, PlatformContext, metadata
from infra.platform.namespaces import Namespaces
from infra.platform.operators.published import room_for_critical_pods
from infra.platform.programs import program
from infra.platform.storage.storage import StorageLayer

COLLECTOR = "collector"
READER = "reader"
IMAGE = "otel-collector"
_OUT = "/logs"
_PODS = "/var/log/pods"
_FILES = f"{_PODS}/{names.team_namespace('*')}_*/*/*.log"
_ROOT_GROUP = 0
"""Group of the kubelet's log files (containerd and CRI-O create them with mode 0640)."""
_MAX_NODES = 10_000
"""Number of collectors in the quota of critical pods: GKE's limit is 15,000 nodes."""
_SECURITY = {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True}


class Logs(Layer):
    """A collector on every node, a reader for each team, and a job that deletes old logs."""

    def __init__(
        self, context: PlatformContext, namespaces: Namespaces, storage: StorageLayer, parent: pulumi.Resource
    ) -> None:
        spec = context.stack.logs
        super().__init__(context, "logs", {"spec": spec.model_dump(mode="json")}, parent)
        namespace = namespaces.by_name[names.LOGS_NAMESPACE]
        self.add(_closed(), [namespace])
        room = self.add(room_for_critical_pods(names.LOGS_NAMESPACE, _MAX_NODES), [namespace])
        # No other object depends on the log collector, so `up` does not wait for it.
        self.add(not_awaited(_collector(context)), [room, *storage.folders])
        for team in context.stack.teams:
            self.add(not_awaited(_reader(context, team.name)), [namespace, *storage.folders])
        self.add(_deletion(context, spec.retention_days), [namespace, *storage.folders])
        self.register_outputs({})


def configuration() -> Mapping[str, Any]:
    """Return the collector's configuration: each line as the container runtime wrote it, byte by byte.

    Files that the runtime has renamed or deleted are read to their end, since the collector has them open. A
    restarted collector may write a line twice; lines have times in nanoseconds, by which readers detect it.
    """
    folder = 'resource.team + "/" + resource.pod + "_" + env("NODE_NAME")'
    receiver = {
        "include": [_FILES, f"{_FILES}.*"],
        "exclude": [f"{_PODS}/*/*/*.gz", f"{_PODS}/*/*/*.tmp"],
        "start_at": "beginning",
        "include_file_name": False,
        "include_file_path": True,
        "encoding": "utf8-raw",
        "preserve_leading_whitespaces": True,
        "preserve_trailing_whitespaces": True,
        "force_flush_period": "0s",
        "poll_interval": "200ms",
        "storage": "file_storage",
        "retry_on_failure": {"enabled": True, "max_elapsed_time": "0s"},
        "operators": [
            {
                "type": "regex_parser",
                "parse_from": 'attributes["log.file.path"]',
                "parse_to": "resource",
                "regex": rf"^{_PODS}/{names.team_namespace('')}(?P<team>[^_]+)_(?P<pod>[^/]+)"
                r"/(?P<container>[^/]+)/(?P<restart>\d+)\.log",
            },
            {
                "type": "add",
                "field": 'resource["fileexporter.path_segment"]',
                "value": f'EXPR({folder} + "/" + resource.container + "." + resource.restart)',
            },
        ],
    }
    exporter = {
        "path": f"{_OUT}/*.log",
        "group_by": {"enabled": True, "max_open_files": 500},
        "encoding": "text_encoding",
        "append": True,
        "create_directory": True,
        "flush_interval": "200ms",
    }
    return {
        "extensions": {"file_storage": {"directory": "/state"}, "text_encoding": {"encoding": "utf8-raw"}},
        "receivers": {"filelog": receiver},
        "exporters": {"file": exporter},
        "service": {
            "extensions": ["file_storage", "text_encoding"],
            "telemetry": {"logs": {"level": "warn"}, "metrics": {"level": "none"}},
            "pipelines": {"logs": {"receivers": ["filelog"], "exporters": ["file"]}},
        },
    }


def _collector(context: PlatformContext) -> Manifest:
    imported = context.settings.image_pull_policy == "Never"
    artifacts = context.artifacts
    container = {
        "name": COLLECTOR,
        "image": artifacts.images[IMAGE] if imported else artifacts.pulled(IMAGE),
        "imagePullPolicy": context.settings.image_pull_policy,
        "args": ["--config=env:CONFIGURATION"],
        "env": [
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            # A soft limit of Go's runtime, below the container's memory limit.
            {"name": "GOMEMLIMIT", "value": "200MiB"},
            {"name": "CONFIGURATION", "value": yaml.safe_dump(configuration())},
        ],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _SECURITY,
        "volumeMounts": [
            {"name": "pods", "mountPath": _PODS, "readOnly": True},
            {"name": "state", "mountPath": "/state"},
            {"name": names.LOGS_CLAIM, "mountPath": _OUT},
        ],
    }
    pod = {
        # On node shutdown it ends after the jobs, so that it reads their last lines.
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        "tolerations": [{"operator": "Exists"}],
        "securityContext": {**RESTRICTED_POD, "runAsGroup": _ROOT_GROUP},
        "containers": [container],
        "volumes": [
            {"name": "pods", "hostPath": {"path": _PODS, "type": "Directory"}},
            {"name": "state", "emptyDir": {"sizeLimit": "256Mi"}},
            _volume(),
        ],
    }
    labels = {"app.kubernetes.io/name": COLLECTOR}
    update = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(COLLECTOR, names.LOGS_NAMESPACE),
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": update,
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _volume() -> dict[str, Any]:
    return {"name": names.LOGS_CLAIM, "persistentVolumeClaim": {"claimName": names.LOGS_CLAIM}}


def _python_pod(
    context: PlatformContext, name: str, command: list[str], mount: Mapping[str, Any]
) -> dict[str, Any]:
    """A small pod of the training image, which the operators' pool has already."""
    container = {
        "name": name,
        "image": context.settings.training_image,
        "imagePullPolicy": context.settings.image_pull_policy,
        "command": command,
        "resources": {"requests": {"cpu": "5m", "memory": "16Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": _SECURITY,
        "volumeMounts": [{"name": names.LOGS_CLAIM, "mountPath": _OUT, **mount}],
    }
    return {
        "nodeSelector": context.system_selector,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": RESTRICTED_POD,
        "containers": [container],
        "volumes": [_volume()],
    }


def _reader(context: PlatformContext, team: str) -> Manifest:
    """A pod that sleeps; `trainyard logs` runs the program of its variable in it."""
    name = names.team_namespace(team)
    pod = _python_pod(context, READER, ["sleep", "infinity"], {"subPath": team, "readOnly": True})
    pod["terminationGracePeriodSeconds"] = 1
    pod["containers"][0]["env"] = [{"name": "READ_LOGS", "value": program("read_logs.py")}]
    labels = {"app.kubernetes.io/name": READER, names.TEAM_LABEL: team}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata(name, names.LOGS_NAMESPACE),
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _deletion(context: PlatformContext, days: int) -> Manifest:
    """Delete, once a day, logs whose last line is older than these days, and folders that are empty then."""
    old = f"find {_OUT} -mindepth 2 -type f -mtime +{days - 1} -delete"
    empty = f"find {_OUT} -mindepth 2 -type d -empty -mtime +0 -delete"
    pod = _python_pod(context, "delete", ["/bin/sh", "-c", f"{old}; {empty}"], {})
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata("retention", names.LOGS_NAMESPACE),
        "spec": {
            "schedule": "17 3 * * *",
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": {
                "spec": {"backoffLimit": 1, "template": {"spec": {**pod, "restartPolicy": "Never"}}}
            },
        },
    }


def _closed() -> Manifest:
    """Deny all traffic of the namespace: nodes mount the files, and pods are entered through their node."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata("closed", names.LOGS_NAMESPACE),
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"], "ingress": [], "egress": []},
    }
