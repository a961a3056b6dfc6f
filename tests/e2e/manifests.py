"""Jobs and pods that the tests submit, as a team would write them."""

from __future__ import annotations

import shlex
from typing import Any

Manifest = dict[str, Any]
NAMESPACE, QUEUE = "team-research", "research"
HOME = "/home/trainyard"
GPU = {"nvidia.com/gpu": "1"}
SSHD = ["/usr/sbin/sshd", "-De", "-f", f"{HOME}/.sshd_config"]

OPEN_MPI_5 = {
    "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
    "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
}
"""The operator's settings for Open MPI 4, under the names that Open MPI 5 reads."""


def container(image: str, command: list[str], *, name: str = "main", gpu: bool = False) -> Manifest:
    """A container of the training image under Pod Security's level `restricted`."""
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "resources": {"requests": GPU, "limits": GPU} if gpu else {},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "env", "mountPath": "/opt/trainyard/env", "readOnly": True}],
    }


def pod_spec(main: Manifest) -> Manifest:
    """A pod around it, with the training environment."""
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [main],
        "volumes": [
            {"name": "env", "persistentVolumeClaim": {"claimName": "training-env", "readOnly": True}}
        ],
    }


def pod(name: str, main: Manifest) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": pod_spec(main),
    }


def queued(api: str, kind: str, name: str, spec: Manifest) -> Manifest:
    """A job of any kind in the queue of the research team."""
    labels = {"kueue.x-k8s.io/queue-name": QUEUE}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": spec,
    }


def train_job(name: str, *, runtime: str, num_nodes: int, command: list[str]) -> Manifest:
    spec = {
        "runtimeRef": {"name": runtime},
        "trainer": {
            "numNodes": num_nodes,
            "command": command,
            "resourcesPerNode": {"requests": GPU, "limits": GPU},
        },
    }
    return queued("trainer.kubeflow.org/v1alpha1", "TrainJob", name, spec)


def mpi_job(name: str, image: str, *, num_nodes: int, command: list[str]) -> Manifest:
    """An MPIJob of the MPI operator: workers with sshd, and a launcher, a node as well, that runs `command`.

    The launcher takes an accelerator, since the queue places no pod by topology that wants nothing of it.
    """
    # Open MPI does not recognize this host by its name in the operator's host file: it uses ssh here too.
    start = f"{shlex.join(SSHD[:1] + SSHD[2:])} && exec {shlex.join(command)}"
    launcher = container(image, ["/bin/sh", "-c", start], name="launcher", gpu=True)
    launcher["env"] = [{"name": name, "value": value} for name, value in OPEN_MPI_5.items()]
    worker = container(image, SSHD, name="worker", gpu=True)
    spec = {
        "mpiImplementation": "OpenMPI",
        "slotsPerWorker": 1,
        "runLauncherAsWorker": True,
        # Workers would serve on after the last rank has ended, on accelerators that the queue takes for free.
        "runPolicy": {"cleanPodPolicy": "Running"},
        "sshAuthMountPath": f"{HOME}/.ssh",
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": pod_spec(launcher)}},
            "Worker": {"replicas": num_nodes - 1, "template": {"spec": pod_spec(worker)}},
        },
    }
    return queued("kubeflow.org/v2beta1", "MPIJob", name, spec)


def legacy_job(
    kind: str, name: str, image: str, *, container_name: str, command: list[str], num_workers: int = 1
) -> Manifest:
    """A job of kubeflow.org/v1: a master and workers that all run `command`."""
    main = container(image, command, name=container_name, gpu=True)
    replicas = {
        role: {"replicas": number, "restartPolicy": "Never", "template": {"spec": pod_spec(main)}}
        for role, number in (("Master", 1), ("Worker", num_workers))
    }
    prefix = {"PyTorchJob": "pytorch", "XGBoostJob": "xgb"}[kind]
    # The operator calls a job done when its master is, and then ends workers that run: so the master is last.
    run_policy = {"cleanPodPolicy": "Running"}
    return queued("kubeflow.org/v1", kind, name, {"runPolicy": run_policy, f"{prefix}ReplicaSpecs": replicas})
