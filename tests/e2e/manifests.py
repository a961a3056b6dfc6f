"""Manifests of jobs and pods that the tests submit, in the form that a team would write."""

import shlex
from typing import Any

from infra.common import names
from infra.common.artifacts import LINKS
from tests.objects import thing

Manifest = dict[str, Any]
NAMESPACE, QUEUE = "team-research", "research"
HOME = "/home/trainyard"
GPU = {"nvidia.com/gpu": "1"}
ENV_CLAIM = names.training_env_claim(str((LINKS / "training-env").resolve()))
SSHD = ["/usr/sbin/sshd", "-De", "-f", f"{HOME}/.sshd_config"]

OPEN_MPI_5 = {
    "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
    "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
}
"""The operator's settings for Open MPI 4, under the names that Open MPI 5 reads."""


def container(image: str, command: list[str], *, name: str = "main", gpu: bool = False) -> Manifest:
    """Return a container of the training image that complies with Pod Security's level `restricted`."""
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
    """Return the spec of a pod with this container and the training environment."""
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
        "volumes": [{"name": "env", "persistentVolumeClaim": {"claimName": ENV_CLAIM, "readOnly": True}}],
    }


def pod(name: str, main: Manifest) -> Manifest:
    return thing("v1", "Pod", name, NAMESPACE, spec=pod_spec(main))


def queued(api: str, kind: str, name: str, spec: Manifest) -> Manifest:
    """Return a job of any kind in the research team's queue."""
    return thing(api, kind, name, NAMESPACE, labels={"kueue.x-k8s.io/queue-name": QUEUE}, spec=spec)


def train_job(name: str, *, runtime: str, nodes: int, command: list[str]) -> Manifest:
    gpu = {"resourcesPerNode": {"requests": GPU, "limits": GPU}}
    trainer = {"numNodes": nodes, "command": command, **gpu}
    spec = {"runtimeRef": {"name": runtime}, "trainer": trainer}
    return queued("trainer.kubeflow.org/v1alpha1", "TrainJob", name, spec)


def mpi_job(name: str, image: str, *, nodes: int, command: list[str]) -> Manifest:
    """Return an MPIJob of the MPI operator: workers with sshd, and a launcher that runs `command`.

    The launcher counts as a node, and requests an accelerator, since the queue places only pods with
    requests by topology.
    """
    # Open MPI does not recognize the launcher's name in the operator's host file, and uses ssh for it too.
    start = f"{shlex.join(SSHD[:1] + SSHD[2:])} && exec {shlex.join(command)}"
    launcher = container(image, ["/bin/sh", "-c", start], name="launcher", gpu=True)
    launcher["env"] = [{"name": name, "value": value} for name, value in OPEN_MPI_5.items()]
    worker = container(image, SSHD, name="worker", gpu=True)
    spec = {
        "mpiImplementation": "OpenMPI",
        "slotsPerWorker": 1,
        "runLauncherAsWorker": True,
        # Else workers would run after the last rank has ended, on accelerators that the queue counts as free.
        "runPolicy": {"cleanPodPolicy": "Running"},
        "sshAuthMountPath": f"{HOME}/.ssh",
        "mpiReplicaSpecs": {
            "Launcher": {"replicas": 1, "template": {"spec": pod_spec(launcher)}},
            "Worker": {"replicas": nodes - 1, "template": {"spec": pod_spec(worker)}},
        },
    }
    return queued("kubeflow.org/v2beta1", "MPIJob", name, spec)


def legacy_job(
    kind: str, name: str, image: str, *, container_name: str, command: list[str], num_workers: int = 1
) -> Manifest:
    """Return a job of kubeflow.org/v1: a master and workers that all run `command`."""
    main = container(image, command, name=container_name, gpu=True)
    replicas = {
        role: {"replicas": number, "restartPolicy": "Never", "template": {"spec": pod_spec(main)}}
        for role, number in (("Master", 1), ("Worker", num_workers))
    }
    prefix = {"PyTorchJob": "pytorch", "XGBoostJob": "xgb"}[kind]
    # The job is done when its master is, and the operator then ends running workers: so the master ends last.
    run_policy = {"cleanPodPolicy": "Running"}
    return queued("kubeflow.org/v1", kind, name, {"runPolicy": run_policy, f"{prefix}ReplicaSpecs": replicas})
