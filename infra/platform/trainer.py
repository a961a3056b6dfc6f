"""Installs Kubeflow Trainer v2, which runs TrainJobs."""

from __future__ import annotations

from infra.kubernetes_objects import Probe
from infra.platform.base import PlatformContext
from infra.platform.images import split
from infra.platform.jobset import replicated_job
from infra.platform.operator import OperatorPlan

NAMESPACE = "kubeflow-system"


def plan(context: PlatformContext) -> OperatorPlan:
    """Render Trainer's chart without its own JobSet, which is an operator of ours."""
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
    return OperatorPlan("trainer", NAMESPACE, values, rendered, _probe())


def _probe() -> Probe:
    api = "trainer.kubeflow.org/v1alpha1"
    runtime = {
        "apiVersion": api,
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "probe", "labels": {"trainer.kubeflow.org/framework": "probe"}},
        "spec": {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": [replicated_job()]}}},
    }
    return Probe(f"/apis/{api}/clustertrainingruntimes", runtime)
