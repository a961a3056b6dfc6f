"""Training runtimes: what a TrainJob of each framework and fabric class looks like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from infra import names
from infra.charts import Manifest
from infra.platform.base import RESTRICTED_CONTAINER, RESTRICTED_POD, Context, Layer, metadata

EX_TEMPFAIL = 75
"""Exit status of a rank that was told to leave and has saved (sysexits.h)."""
MAX_RESTARTS = 5
"""Restarts for faults of the job's own; the loss of a node does not count."""
_HOME = "/home/trainyard"
_NODE_NAME = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
"""Told to the training code, whose metrics name nodes rather than pods."""
_TOPOLOGY_ANNOTATION = "kueue.x-k8s.io/podset-preferred-topology"


class Runtimes(Layer):
    """One runtime per framework and fabric class: `torch-none`, `mpi-none`."""

    def __init__(self, context: Context, trainer: Sequence[pulumi.Resource], parent: pulumi.Resource) -> None:
        super().__init__(context, "runtimes", {"runtimes": list(context.stack.runtimes)}, parent)
        makers = {"torch": _torch, "mpi": _mpi}
        for fabric in sorted({pool.fabric_class for pool in context.job_pools}):
            for framework, make in makers.items():
                self.add(_runtime(names.runtime(framework, fabric), framework, make(context)), trainer)
        self.register_outputs({"names": list(context.stack.runtimes)})


def _runtime(name: str, framework: str, spec: dict[str, Any]) -> Manifest:
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": metadata(name, labels={"trainer.kubeflow.org/framework": framework}),
        "spec": spec,
    }


def _torch(context: Context) -> dict[str, Any]:
    """Every node runs torchrun, which reads `PET_*` from Trainer; the job adds its module as arguments."""
    command = ["python3", "-m", "torch.distributed.run"]
    node = _replicated_job("node", _pod(context, {"command": command}), trainer=True)
    return {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"failurePolicy": _failure_policy(), "replicatedJobs": [node]}},
    }


def _mpi(context: Context) -> dict[str, Any]:
    """Workers run sshd; the launcher, a node as well, runs the job's `mpirun` once they serve."""
    sshd = {
        "command": ["/usr/sbin/sshd"],
        "args": ["-De", "-f", f"{_HOME}/.sshd_config"],
        "readinessProbe": {"tcpSocket": {"port": 2222}, "periodSeconds": 2},
    }
    launcher = _replicated_job("launcher", _pod(context, {}), trainer=True)
    launcher["dependsOn"] = [{"name": "node", "status": "Ready"}]
    return {
        "mlPolicy": {
            "numNodes": 1,
            "mpi": {
                "numProcPerNode": 1,
                "mpiImplementation": "OpenMPI",
                "sshAuthMountPath": f"{_HOME}/.ssh",
                "runLauncherAsNode": True,
            },
        },
        "template": {
            "spec": {
                "network": {"publishNotReadyAddresses": True},
                "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
                "failurePolicy": _failure_policy(),
                "replicatedJobs": [_replicated_job("node", _pod(context, sshd)), launcher],
            }
        },
    }


def _failure_policy() -> dict[str, Any]:
    """Restart all together, and do not count restarts that a lost or leaving node has caused."""
    rule = {
        "name": "spot",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    return {"maxRestarts": MAX_RESTARTS, "rules": [rule]}


def _replicated_job(name: str, pod: dict[str, Any], *, trainer: bool = False) -> dict[str, Any]:
    """Return a Job of JobSet; `trainer` marks the one whose container a TrainJob's `trainer` overrides."""
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"} if trainer else {}
    # Peers of a lost pod hang in their collectives: the loss of one fails the Job, and all restart.
    leaving = {"containerName": "node", "operator": "In", "values": [EX_TEMPFAIL]}
    rules = [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": leaving},
    ]
    template = {
        "metadata": {"annotations": {_TOPOLOGY_ANNOTATION: names.HOSTNAME_LABEL}},
        "spec": pod,
    }
    job = {"backoffLimit": 0, "podFailurePolicy": {"rules": rules}, "template": template}
    return {"name": name, "template": {"metadata": {"labels": step}, "spec": job}}


def _pod(context: Context, container: dict[str, Any]) -> dict[str, Any]:
    notices = [pool.preemption_notice_seconds for pool in context.job_pools if pool.preemption_notice_seconds]
    claims = {names.CHECKPOINTS_CLAIM: False, names.TRAINING_ENV_CLAIM: True}
    return {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": min(notices, default=30),
        "automountServiceAccountToken": False,
        # Process 1 takes no signal that it has no handler for: while Python still imports, it would sit out
        # the whole grace period. With a shared process namespace it is not process 1.
        "shareProcessNamespace": True,
        "securityContext": RESTRICTED_POD,
        "containers": [{**_container(context), **container}],
        "volumes": [
            {"name": claim, "persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}}
            for claim, read_only in claims.items()
        ],
    }


def _container(context: Context) -> dict[str, Any]:
    resource = context.job_pools[0].accelerator_resource
    environment = {
        "HOME": _HOME,
        "PATH": f"{names.TRAINING_ENV_MOUNT}/bin:/usr/local/bin:/usr/bin:/bin",
        "PYTHONPATH": f"{names.TRAINING_SOURCE}:{names.TRAINING_ENV_MOUNT}",
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OPAL_PREFIX": names.TRAINING_ENV_MOUNT,
    }
    return {
        "name": "node",
        "image": context.artifacts.training_image,
        "imagePullPolicy": context.settings.image_pull_policy,
        "env": [*({"name": name, "value": value} for name, value in environment.items()), _NODE_NAME],
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {resource: 1}},
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": [
            {"name": names.CHECKPOINTS_CLAIM, "mountPath": names.CHECKPOINTS_MOUNT},
            {"name": names.TRAINING_ENV_CLAIM, "mountPath": names.TRAINING_ENV_MOUNT, "readOnly": True},
        ],
    }
