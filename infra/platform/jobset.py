"""JobSet: groups of Jobs that start, fail and restart together. Trainer makes its jobs from it."""

from __future__ import annotations

from infra.platform.base import Context
from infra.platform.images import split
from infra.platform.operator import OperatorPlan

NAMESPACE = "jobset-system"


def plan(context: Context) -> OperatorPlan:
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
    return OperatorPlan("jobset", NAMESPACE, values, context.renderer.chart("jobset", NAMESPACE, values))
