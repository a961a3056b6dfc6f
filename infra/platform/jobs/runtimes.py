"""Declares a ClusterTrainingRuntime per framework (torchrun, MPI) and fabric class: pods, restarts, grace."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pulumi

import catalog
from infra.common import names
from infra.common.charts import Manifest
from infra.platform.base import (
    HOME,
    RESTRICTED_CONTAINER,
    RESTRICTED_POD,
    Layer,
    PlatformContext,
    metadata,
    python_environment,
)
from infra.platform.fabric import FABRIC_SIGNAL, environment, pod_annotations, resources, with_fabric
from infra.platform.programs import on_fabric, program, unpacking
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.grace import LASTING_SECONDS, runtime_grace_seconds
from infra.targets.base import PoolSettings

EX_USAGE = 2
"""Exit status of a program with wrong arguments, as of `argparse`."""
EX_NO_FABRIC = 128 + FABRIC_SIGNAL
"""Exit status of ranks that would have used TCP on a pool with a fabric (check_fabric.sh)."""
EX_HELD = 193
"""Exit status of a pod that was held after its command had failed (hold_failed.sh)."""
EX_UNUSABLE, EX_NOT_DURABLE = 78, 79
"""Exit statuses of a run whose checkpoints cannot be used, and of one that cannot save any."""
EX_FAILS = (EX_USAGE, EX_UNUSABLE, EX_NOT_DURABLE, EX_NO_FABRIC, EX_HELD)
"""Exit statuses after which a restart would end in the same way, in ascending order, as a Job requires."""
EX_TEMPFAIL, EX_PEER_FAILED = 75, 76
"""Exit statuses of a rank that was preempted and has saved (sysexits.h), and of a rank whose peer failed."""
MAX_RESTARTS = 5
"""Maximum number of restarts after faults of the job itself; loss of a node does not count."""
_FIELDS = {
    "TRAINYARD_GRACE_SECONDS": f"metadata.annotations['{names.GRACE_ANNOTATION}']",
    "TRAINYARD_NOTICE_SECONDS": f"metadata.annotations['{names.NOTICE_ANNOTATION}']",
    "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": f"metadata.annotations['{names.GRACE_ANNOTATION}']",
    "NODE_NAME": "spec.nodeName",
}
"""Variable → field of the pod: the time that processes have to end (torchrun takes 30 s by default), and
the node's name for metrics. They refer to fields, since a runtime's containers are the same on all
clusters of a fleet."""
_OF_THE_POD = [
    {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in _FIELDS.items()
]
_PRRTE = {
    "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
    "PRTE_MCA_prte_do_not_resolve": "false",
    "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
}
_OF_THE_IMAGE = ("PATH", "PYTHONPATH", "OPAL_PREFIX", "LD_LIBRARY_PATH")
"""Variables of the image, if it has them, that sshd would not pass to the ranks of an MPI job."""
_NOT_EVICTED = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Annotation that keeps an autoscaler from ending a job to save a node."""
_JOB = {"name": names.JOB_VOLUME, "mountPath": names.JOB_MOUNT}
_IN_MEMORY = {"medium": "Memory", "sizeLimit": f"{names.JOB_VOLUME_GIB}Gi"}
"""Settings of the in-memory volume for code: 5,000 small files unpack in 0.2 s, and in 2 to 3 s on a measured
disk. The volume holds a pack of at most 256 MiB and the unpacked files at the same time."""
_PREFERRED, _REQUIRED = (f"kueue.x-k8s.io/podset-{kind}-topology" for kind in ("preferred", "required"))


class Runtimes(Layer):
    """One runtime per framework and fabric class: `torch-tcp`, `mpi-tcp`.

    And one per framework that every target has, so that one TrainJob file runs on all of them.
    """

    def __init__(
        self, context: PlatformContext, trainer: Sequence[pulumi.Resource], parent: pulumi.Resource
    ) -> None:
        inputs = {"runtimes": list(context.stack.runtimes)}
        super().__init__(context, "runtimes", inputs, parent, trainer)
        makers = {"torch": _torch, "mpi": _mpi}
        for name, framework, fabric in runtimes_of(context):
            self.add(_runtime(context, name, framework, makers[framework](context, fabric)), trainer)
        self.register_outputs({"names": list(context.stack.runtimes)})


def runtimes_of(context: PlatformContext) -> Iterator[tuple[str, str, str]]:
    """Yield each runtime of the stack: its name, framework and fabric class."""
    for fabric in context.fabrics:
        for framework in catalog.fabric(fabric).frameworks:
            yield names.runtime(framework, fabric), framework, fabric
            if fabric == context.first_fabric:
                yield names.runtime(framework, names.ANY_FABRIC), framework, fabric


def _runtime(context: PlatformContext, name: str, framework: str, spec: dict[str, Any]) -> Manifest:
    about = metadata(name, labels={"trainer.kubeflow.org/framework": framework})
    if datasets := {each.name: _staged(each) for each in context.stack.datasets}:
        about["annotations"] = {names.DATASETS_ANNOTATION: json.dumps(datasets)}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": about,
        "spec": spec,
    }


def _staged(dataset: DatasetSpec) -> list[Any]:
    """Return what `trainyard run` must know of a dataset without the stack file: path, digest, readers."""
    return [dataset.path, dataset.digest, *([list(dataset.teams)] if dataset.teams else [])]


def _torch(context: PlatformContext, fabric: str) -> dict[str, Any]:
    """Every node runs torchrun, which reads `PET_*` from Trainer; the job adds its module as arguments."""
    command = ["python3", "-m", "torch.distributed.run"]
    pod = _pod(context, "torch", fabric, {"command": command})
    node = _replicated_job(context, "node", pod, _annotations(context, "torch", fabric), is_trainer=True)
    return {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"failurePolicy": _failure_policy(), "replicatedJobs": [node]}},
    }


def _mpi(context: PlatformContext, fabric: str) -> dict[str, Any]:
    """Workers run sshd; the launcher, a node as well, runs the job's `mpirun` once they serve."""
    asked = _annotations(context, "mpi", fabric)
    launcher = _replicated_job(context, "launcher", _launcher_pod(context, fabric), asked, is_trainer=True)
    workers = _replicated_job(context, "node", _worker_pod(context, fabric), asked)
    launcher["dependsOn"] = [{"name": "node", "status": "Ready"}]
    return {
        "mlPolicy": {
            "numNodes": 1,
            "mpi": {
                "numProcPerNode": 1,
                "mpiImplementation": "OpenMPI",
                "sshAuthMountPath": f"{HOME}/.ssh",
                "runLauncherAsNode": True,
            },
        },
        "template": {
            "spec": {
                "network": {"publishNotReadyAddresses": True},
                "successPolicy": {"operator": "All", "targetReplicatedJobs": ["launcher"]},
                "failurePolicy": _failure_policy(),
                "replicatedJobs": [workers, launcher],
            }
        },
    }


def _worker_pod(context: PlatformContext, fabric: str) -> dict[str, Any]:
    pod = _pod(context, "mpi", fabric, {})
    [container] = pod["containers"]
    named = dict.fromkeys([*_OF_THE_IMAGE, *(variable["name"] for variable in container["env"])])
    sshd = {
        # Trainer gives workers the job's variables, including the digest of its code, but no command.
        "command": [*unpacking(), *on_fabric(fabric), "python3", "-c", program("serve_ssh.py")],
        "args": list(named),
        "readinessProbe": {"tcpSocket": {"port": 2222}, "periodSeconds": 2},
    }
    return {**pod, "containers": [_with_pre_stop({**container, **sshd})]}


def _with_pre_stop(container: dict[str, Any]) -> dict[str, Any]:
    """Add a preStop hook that signals the ranks and waits until they have checkpointed and exited."""
    command = ["python3", "-c", program("end_ranks.py")]
    lifecycle = {**container.get("lifecycle", {}), "preStop": {"exec": {"command": command}}}
    return {**container, "lifecycle": lifecycle}


def _launcher_pod(context: PlatformContext, fabric: str) -> dict[str, Any]:
    pod = _pod(context, "mpi", fabric, {})
    container = pod["containers"][0]
    # Trainer sets Open MPI 4's variables; Open MPI 5 uses PRRTE, which has other names for the same settings.
    variables = [{"name": name, "value": value} for name, value in _PRRTE.items()]
    # mpirun recognises its own host in the host file by address, so DNS must have its name.
    waiting = {
        **{key: value for key, value in container.items() if key != "lifecycle"},
        "name": "wait-for-dns",
        "command": ["python3", "-c", program("wait_for_dns.py")],
        "resources": {},
    }
    return {
        **pod,
        "initContainers": [*pod.get("initContainers", []), waiting],
        "containers": [_with_pre_stop({**container, "env": container["env"] + variables})],
    }


def _failure_policy() -> dict[str, Any]:
    """Restart all together, and do not count restarts that a failed or draining node has caused.

    Only the Job's message shows which rule of the pods made it fail.
    """
    reasons = {"onJobFailureReasons": ["PodFailurePolicy"]}
    hopeless = {
        "name": "wrong_configuration",
        "action": "FailJobSet",
        **reasons,
        "onJobFailureMessagePatterns": [
            f"failed with exit code ({'|'.join(map(str, EX_FAILS))}) matching FailJob rule"
        ],
    }
    spot = {"name": "spot", "action": "RestartJobSetAndIgnoreMaxRestarts", **reasons}
    return {"maxRestarts": MAX_RESTARTS, "rules": [hopeless, spot]}


def _annotations(context: PlatformContext, framework: str, fabric: str) -> dict[str, str]:
    """Pods close to each other, or all of them in one slice; the interfaces of their fabric; their grace."""
    level = context.settings.required_topology
    topology = {_REQUIRED: level} if level else {_PREFERRED: names.HOSTNAME_LABEL}
    retained = _NOT_EVICTED if context.settings.autoscaler else {}
    ends = {names.GRACE_ANNOTATION: str(_grace_seconds(context, framework, fabric))}
    if notices := [notice for notice in _notices(context, fabric) if notice is not None]:
        ends[names.NOTICE_ANNOTATION] = str(min(notices))
    return {**topology, **retained, **pod_annotations(fabric), **ends}


def _grace_seconds(context: PlatformContext, framework: str, fabric: str) -> int:
    asked = context.stack.grace_seconds
    return runtime_grace_seconds(names.runtime(framework, fabric), _notices(context, fabric), asked)


def longest_grace_seconds(context: PlatformContext) -> int:
    """Return the longest grace that a runtime's pods have: admission gives no pod of a job more."""
    made = [
        _grace_seconds(context, framework, fabric)
        for fabric in context.fabrics
        for framework in catalog.fabric(fabric).frameworks
    ]
    return max(made, default=LASTING_SECONDS)


def _notices(context: PlatformContext, fabric: str) -> list[int | None]:
    """The preemption notice of each pool of a fabric; None for pools that are not spot."""
    return [pool.preemption_notice_seconds for pool in context.job_pools if pool.fabric_class == fabric]


def _replicated_job(
    context: PlatformContext,
    name: str,
    pod: dict[str, Any],
    asked: Mapping[str, str],
    *,
    is_trainer: bool = False,
) -> dict[str, Any]:
    """Return a Job of JobSet; `is_trainer` marks the one whose container a TrainJob's `trainer` overrides."""
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"} if is_trainer else {}
    own = dict(context.settings.pod_labels)
    # The failure of one pod fails the Job, and all pods restart. Its peers may have exited before the failure
    # of its node is detected.
    ends = {"containerName": "node", "operator": "In"}
    rules = [
        {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {**ends, "values": [EX_TEMPFAIL, EX_PEER_FAILED]}},
        {"action": "FailJob", "onExitCodes": {**ends, "values": [*EX_FAILS]}},
    ]
    template = {"metadata": {**({"labels": own} if own else {}), "annotations": dict(asked)}, "spec": pod}
    job = {"backoffLimit": 0, "podFailurePolicy": {"rules": rules}, "template": template}
    return {"name": name, "template": {"metadata": {"labels": step}, "spec": job}}


def _pod(context: PlatformContext, framework: str, fabric: str, container: dict[str, Any]) -> dict[str, Any]:
    pools = [pool for pool in context.job_pools if pool.fabric_class == fabric]
    claims = {mount["name"]: mount.get("readOnly", False) for mount in _mounts(context)}
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _grace_seconds(context, framework, fabric),
        "automountServiceAccountToken": False,
        # Process 1 ignores signals without a handler: while Python still imports, it would run until the end
        # of the grace period. With a shared process namespace it is not process 1.
        "shareProcessNamespace": True,
        "securityContext": _security(context, fabric),
        "containers": [{**_container(context, pools), **container}],
        "volumes": [
            *(
                {"name": name, "persistentVolumeClaim": context.claim(name, read_only=read_only)}
                for name, read_only in claims.items()
            ),
            {"name": names.JOB_VOLUME, "emptyDir": _IN_MEMORY},
        ],
    }
    if _are_simulated(pools):
        return pod
    check = names.runtime(framework, fabric) not in context.stack.unchecked_runtimes
    return with_fabric(pod, fabric, check=check)


def _security(context: PlatformContext, fabric: str) -> dict[str, Any]:
    group = context.settings.device_groups.get(catalog.fabric(fabric).accelerator_resource)
    return {**RESTRICTED_POD, **({"supplementalGroups": [group]} if group else {})}


def _container(context: PlatformContext, pools: Sequence[PoolSettings]) -> dict[str, Any]:
    fabric = pools[0].fabric_class
    # A job requests a number of a node's accelerators; with a fabric it gets the whole node.
    accelerators = 1 if fabric == "tcp" else min(pool.accelerators_per_node for pool in pools)
    variables = {
        **python_environment(context.settings),
        "HF_HUB_CACHE": names.HUGGING_FACE_CACHE,
        **({} if _are_simulated(pools) else _asked(fabric, accelerators)),
        **environment(fabric),
    }
    return {
        "name": "node",
        "image": context.settings.training_images.get(
            pools[0].accelerator_resource, context.settings.training_image
        ),
        "imagePullPolicy": context.settings.image_pull_policy,
        "env": [*({"name": name, "value": value} for name, value in variables.items()), *_OF_THE_POD],
        "resources": {
            "requests": {"cpu": "100m", "memory": "256Mi"},
            "limits": resources(fabric, accelerators),
        },
        "securityContext": RESTRICTED_CONTAINER,
        "volumeMounts": [*_mounts(context), dict(_JOB)],
    }


def _are_simulated(pools: Sequence[PoolSettings]) -> bool:
    return all(names.SIMULATED_LABEL in pool.labels for pool in pools)


def _asked(fabric: str, accelerators: int) -> dict[str, str]:
    """Variables by which ranks know that they must not train on the processors of the node."""
    return {
        names.ACCELERATOR_VARIABLE: catalog.fabric(fabric).accelerator_resource,
        names.ACCELERATORS_VARIABLE: str(accelerators),
    }


def _mounts(context: PlatformContext) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = [{"name": names.CHECKPOINTS_CLAIM, "mountPath": names.CHECKPOINTS_MOUNT}]
    if context.settings.training_env:
        mounts.append({"name": names.TRAINING_ENV, "mountPath": names.TRAINING_ENV_MOUNT, "readOnly": True})
    if context.stack.datasets:
        mounts.append({"name": names.DATASETS_CLAIM, "mountPath": names.DATASETS_MOUNT, "readOnly": True})
    return mounts
