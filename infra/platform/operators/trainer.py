"""Plans the installation of Kubeflow Trainer v2 (TrainJobs): its chart, and probes of its webhooks."""

from infra.common.images import split
from infra.common.kubernetes_objects import Probe, Probes
from infra.platform.base import PlatformContext
from infra.platform.operators.jobset import replicated_job
from infra.platform.operators.operator import OperatorPlan

NAMESPACE = "kubeflow-system"


def plan(context: PlatformContext) -> OperatorPlan:
    """Render Trainer's chart without the bundled JobSet, which we install as a separate operator."""
    registry, repository, tag = split(context.artifacts.images["trainer-manager"])
    values = {
        "jobset": {"install": False},
        "image": {
            "registry": registry,
            "repository": repository,
            "tag": tag,
            "pullPolicy": context.settings.image_pull_policy,
        },
        "manager": {
            "nodeSelector": context.system_selector,
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        },
    }
    rendered = context.renderer.chart("trainer", NAMESPACE, values)
    return OperatorPlan("trainer", NAMESPACE, values, rendered, _probes())


def _probes() -> Probes:
    """Return a runtime that pkg/webhooks/clustertrainingruntime_webhook.go rejects: it has no trainer.

    Its mutating webhook evaluates TrainJobs only, of which the stack has none.
    """
    api = "trainer.kubeflow.org/v1alpha1"
    job = replicated_job("other")
    job["template"]["metadata"] = {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}}
    runtime = {
        "apiVersion": api,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "probe", "labels": {"trainer.kubeflow.org/framework": "probe"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    return Probes(
        f"/apis/{api}/clustertrainingruntimes",
        (Probe(runtime, "validator.clustertrainingruntime.trainer.kubeflow.org"),),
    )
