"""Plans the installation of Kueue: its chart, its configuration, and probes of its webhooks.

Kueue admits a job once its whole quota and nodes are free.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import yaml

import catalog
from infra.common.charts import Rendered
from infra.common.images import edit_deployments, split
from infra.common.kubernetes_objects import Probe, Probes
from infra.platform.base import PlatformContext
from infra.platform.operators.operator import OperatorPlan
from infra.stackfile.operators import OperatorsSpec

NAMESPACE = "kueue-system"
READY_MINUTES, AUTOSCALED_READY_MINUTES, RECOVERY_MINUTES = 5, 30, 2
"""Default timeouts of `waitForPodsReady`, where the stack does not set them."""
MEMORY_LIMIT, GO_MEMORY_LIMIT = "2Gi", "1600MiB"
"""Memory limits, measured with pending Workloads of 2 kB: 10,000 take 294 MB, and a restart peaks at 581
MB."""
RETENTION_AFTER_FINISHED = "168h0m0s"
"""Retention of finished Workloads: long enough to estimate how long a team's jobs take."""
_FAIR = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
"""Kueue's default settings of fair sharing."""


def plan(context: PlatformContext) -> OperatorPlan:
    """Render Kueue's chart; the chart in the module names a staging image, so ours is set in full."""
    registry, repository, tag = split(context.artifacts.images["kueue-manager"])
    values = {
        "controllerManager": {
            "manager": {
                "image": {
                    "repository": f"{registry}/{repository}",
                    "tag": tag,
                    "pullPolicy": context.settings.image_pull_policy,
                },
                "resources": {
                    "requests": {"cpu": "50m", "memory": "128Mi"},
                    "limits": {"memory": MEMORY_LIMIT},
                },
            },
            "nodeSelector": context.system_selector,
            # One replica on an idle node serves within seconds; the default period of 10 s would delay `up`.
            "readinessProbe": {"initialDelaySeconds": 1, "periodSeconds": 2},
        },
        "managerConfig": {
            "controllerManagerConfigYaml": yaml.safe_dump(
                configuration(
                    context.stack.operators,
                    context.stack.name,
                    _without_quota(),
                    _feature_gates(context),
                    autoscaled=any(pool.capacity_mode != "fixed" for pool in context.queued_pools),
                    fair_sharing=any(queue.weight is not None for queue in context.stack.queues),
                )
            )
        },
    }
    rendered = context.renderer.chart("kueue", NAMESPACE, values)
    objects = edit_deployments(rendered.objects, _with_memory_limit)
    return OperatorPlan("kueue", NAMESPACE, values, Rendered(objects, rendered.definitions), _probes())


def _with_memory_limit(pod: dict[str, Any]) -> dict[str, Any]:
    """Have Go collect garbage before the kernel ends the process; the chart takes no variables."""
    limit = {"name": "GOMEMLIMIT", "value": GO_MEMORY_LIMIT}
    return {
        **pod,
        "containers": [{**each, "env": [*each.get("env", ()), limit]} for each in pod["containers"]],
    }


def _probes() -> Probes:
    """Return an object that gets a finalizer, and one that is rejected (resourceflavor_webhook.go)."""
    api = "kueue.x-k8s.io/v1beta2"
    flavor = {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "probe"}}
    invalid = {**flavor, "spec": {"nodeLabels": {"no label": ""}}}
    return Probes(
        f"/apis/{api}/resourceflavors",
        (Probe(flavor, "kueue.x-k8s.io/resource-in-use"), Probe(invalid, "vresourceflavor.kb.io")),
    )


def _without_quota() -> list[str]:
    """Return the node resources that jobs request together with accelerators.

    They include every fabric's, since the manager of a fleet admits jobs to nodes of other clusters.
    """
    return sorted({name for fabric in catalog.fabrics() for name in fabric.pod_resources})


def _feature_gates(context: PlatformContext) -> dict[str, bool]:
    """Return the features that are off.

    Reclaimable pods: when a Job of a JobSet succeeds, Kueue frees its quota. When the JobSet then restarts,
    the Job runs again, and Kueue does not take the quota back (kueue#14609): its queue would admit other
    jobs to accelerators in use.
    Elastic jobs: where the annotation `kueue.x-k8s.io/elastic-job` is on a Job that a JobSet makes from its
    template, Kueue would suspend it only once the JobSet's workload is evicted, not while it is not admitted
    (reconciler.go, shouldSuspendChildJob).
    Dynamic Resource Allocation: claims are to devices of a fabric, which come with the node.
    """
    off = ["ElasticJobsViaWorkloadSlices", "ReclaimablePods"]
    if context.has_resource_claims:
        off += ["KueueDRAIntegration", "KueueDRARejectWorkloadsWhenDRADisabled"]
    return dict.fromkeys(off, False)


def configuration(
    operators: OperatorsSpec,
    cluster: str,
    without_quota: Sequence[str] = (),
    feature_gates: Mapping[str, bool] = MappingProxyType({}),
    *,
    autoscaled: bool = False,
    fair_sharing: bool = False,
) -> dict[str, Any]:
    """Return Kueue's own configuration; `without_quota` are resources of fabrics.

    Pods, deployments and stateful sets are not queued: only jobs are. CPU and memory have no quota, since
    accelerators are what is scarce. A job whose pods are not all ready in time, or not again after one has
    failed, is evicted and queued again; an autoscaled node has to boot and pull the image of jobs
    first, which takes up to half an hour. `fair_sharing`: queues of a cohort borrow by their weights, and
    a queue that has borrowed more than its share is preempted. Objects that a manager of a fleet creates on
    workers carry the manager's name as their origin, so that no other manager garbage-collects them.
    """
    usual = AUTOSCALED_READY_MINUTES if autoscaled else READY_MINUTES
    ready_minutes = operators.pods_ready_minutes or usual
    recovery_minutes = operators.pods_recovery_minutes or RECOVERY_MINUTES
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
        "controller": {
            "groupKindConcurrency": {
                "Job.batch": 5,
                "Workload.kueue.x-k8s.io": 5,
                "LocalQueue.kueue.x-k8s.io": 1,
                "ClusterQueue.kueue.x-k8s.io": 1,
                "ResourceFlavor.kueue.x-k8s.io": 1,
            }
        },
        "clientConnection": {"qps": 300, "burst": 500},
        "waitForPodsReady": {
            "timeout": f"{ready_minutes}m",
            "recoveryTimeout": f"{recovery_minutes}m",
            "blockAdmission": False,
            "requeuingStrategy": {"timestamp": "Eviction", "backoffBaseSeconds": 2, "backoffMaxSeconds": 60},
        },
        "resources": {"excludeResourcePrefixes": ["cpu", "memory", "ephemeral-storage", *without_quota]},
        "objectRetentionPolicies": {"workloads": {"afterFinished": RETENTION_AFTER_FINISHED}},
        "multiKueue": {"origin": cluster},
        "integrations": {"frameworks": frameworks(operators)},
        **({"fairSharing": {"preemptionStrategies": _FAIR}} if fair_sharing else {}),
        **({"featureGates": dict(feature_gates)} if feature_gates else {}),
    }


def frameworks(operators: OperatorsSpec) -> list[str]:
    """Return the kinds of jobs that are queued."""
    found = ["batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob", "kubeflow.org/mpijob"]
    legacy = operators.training_operator.kinds if operators.training_operator else ()
    return found + [f"kubeflow.org/{kind.lower()}" for kind in legacy]
