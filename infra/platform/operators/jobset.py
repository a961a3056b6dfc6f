"""Plans the installation of the JobSet controller: its chart, and probes of its webhooks. Trainer makes
JobSets of its jobs.
"""

from typing import Any

from infra.common.images import split
from infra.common.kubernetes_objects import Probe, Probes
from infra.platform.base import PlatformContext
from infra.platform.operators.operator import OperatorPlan

NAMESPACE = "jobset-system"


def plan(context: PlatformContext) -> OperatorPlan:
    """Render JobSet's chart."""
    registry, repository, tag = split(context.artifacts.images["jobset-manager"])
    values = {
        "image": {
            "repository": f"{registry}/{repository}",
            "tag": tag,
            "pullPolicy": context.settings.image_pull_policy,
        },
        "controller": {
            "nodeSelector": context.system_selector,
            "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "512Mi"}},
        },
    }
    rendered = context.renderer.chart("jobset", NAMESPACE, values)
    return OperatorPlan("jobset", NAMESPACE, values, rendered, _probes())


def _probes() -> Probes:
    """Return objects that pkg/webhooks/jobset_webhook.go gives a default, and rejects."""
    api = "jobset.x-k8s.io/v1alpha2"
    job_set = {
        "apiVersion": api,
        "kind": "JobSet",
        "metadata": {"name": "probe", "namespace": NAMESPACE},
        "spec": {"replicatedJobs": [replicated_job()]},
    }
    other = {"operator": "All", "targetReplicatedJobs": ["other"]}
    invalid = {**job_set, "spec": {"replicatedJobs": [replicated_job()], "successPolicy": other}}
    return Probes(
        f"/apis/{api}/namespaces/{NAMESPACE}/jobsets",
        (
            Probe(job_set, '"successPolicy"'),
            Probe(invalid, "validate-jobset-x-k8s-io-v1alpha2-jobset.x-k8s.io"),
        ),
    )


def replicated_job(container: str = "node") -> dict[str, Any]:
    """Return the least that a JobSet is made of, for probes."""
    pod = {"restartPolicy": "Never", "containers": [{"name": container, "image": "probe"}]}
    return {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
