"""ResourceQuota and LimitRange of each team's namespace: pods, CPUs, memory, storage, accelerators and
objects in total, scratch space per container and pod.
"""

from collections import Counter
from typing import Any

import pulumi

from infra.common import names, quantities
from infra.common.charts import Manifest
from infra.platform.base import Layer, PlatformContext, metadata
from infra.platform.namespaces import Namespaces
from infra.platform.storage.storage import claimed_gib
from infra.platform.teams.role_bindings import job_resources
from infra.stackfile.limits import limits_of, shares_of
from infra.stackfile.queue import TeamSpec
from infra.targets.base import ClusterOutputs

LIMITS = "team"
_ENDED_PODS = 10
"""Number of ended pods per running pod that a quota allows, since ended pods remain until their job is
deleted."""
_FILLED = 4
"""Multiple of a container's scratch that all containers of a pod may have together: the kubelet evicts a pod
by the sum of its containers' limits, so that many containers would be no limit."""
_LEAST_CLAIMED = {"storage": "1Gi"}
"""Smallest claim: clouds make no smaller disk, and a quota counts what is asked for."""
_LEAST = {"cpu": "50m", "memory": "128Mi", "ephemeral-storage": "0"}
"""Default requests of a container: with a quota, pods without CPU and memory requests are refused.

There is no memory limit, which would kill healthy jobs. On a node without free memory the kernel first kills
containers that use much more than they request.
"""


class Limits(Layer):
    """A ResourceQuota and a LimitRange per team."""

    def __init__(
        self,
        context: PlatformContext,
        namespaces: Namespaces,
        outputs: ClusterOutputs,
        parent: pulumi.Resource,
    ) -> None:
        teams = {team.name: team.limits.model_dump(mode="json") for team in context.stack.teams}
        super().__init__(context, "limits", {"teams": teams}, parent)
        for team in context.stack.teams:
            namespace = namespaces.by_name[names.team_namespace(team.name)]
            self.add(limit_range(team), [namespace])
            self.add(quota(team, context, claimed_gib(context, outputs)), [namespace])
        self.register_outputs({})


def limit_range(team: TeamSpec) -> Manifest:
    """Return defaults of containers, limits of scratch space per container and pod, and the minimum claim."""
    scratch = {"ephemeral-storage": f"{team.limits.scratch_gib}Gi"}
    container = {"type": "Container", "default": scratch, "max": scratch, "defaultRequest": _LEAST}
    pod = {"type": "Pod", "max": {"ephemeral-storage": f"{_FILLED * team.limits.scratch_gib}Gi"}}
    claim = {"type": "PersistentVolumeClaim", "min": _LEAST_CLAIMED}
    return _object("v1", "LimitRange", team, {"limits": [container, pod, claim]})


def quota(team: TeamSpec, context: PlatformContext, platform_gib: int) -> Manifest:
    """Return the ResourceQuota; `platform_gib` is the size of the platform's own claims in the namespace.

    TrainJobs, JobSets and MPIJobs are counted by the Jobs that they become, and by themselves where the stack
    limits them (`_custom_jobs`).
    """
    limits, found = team.limits, limits_of(team, context.stack.queues, context.stack.pools)
    hard: dict[str, int | str] = {
        "pods": found.pods,
        "count/pods": _ENDED_PODS * found.pods,
        "requests.cpu": found.cpus,
        "requests.memory": f"{found.memory_gib}Gi",
        "requests.storage": f"{limits.claimed_gib + platform_gib}Gi",
        "count/jobs.batch": limits.jobs,
        "count/secrets": limits.secrets,
        "count/configmaps": limits.config_maps,
        "count/services": limits.jobs,  # one for each job of several pods, which find each other by it
        "services.loadbalancers": 0,
        "services.nodeports": 0,
        **_accelerators(team, context),
        **_custom_jobs(team, context),
    }
    written = {
        name: quantities.written(each) if isinstance(each, int) else each for name, each in hard.items()
    }
    return _object("v1", "ResourceQuota", team, {"hard": written})


def _custom_jobs(team: TeamSpec, context: PlatformContext) -> dict[str, int]:
    """Return the maximum of each kind of job that is a custom resource, if the stack sets one.

    There is no default: Kubernetes refuses all objects of a counted kind until its quota controller knows the
    kind (looked for every 30 s) and has counted it (every 5 min; Kubernetes 1.35,
    resource_quota_controller.go: Sync, Run), and so the first jobs of a new cluster.
    """
    if team.limits.custom_jobs is None:
        return {}
    kinds = [f"{kind}.{group}" for group, each in job_resources(context).items() for kind in each]
    return {f"count/{kind}": team.limits.custom_jobs for kind in kinds if not kind.endswith(".batch")}


def _accelerators(team: TeamSpec, context: PlatformContext) -> dict[str, int]:
    """Return the maximum that the team's queues allow of each accelerator of which its pools have more.

    Kueue frees a job's quota when it is deleted, suspended or preempted, before its pods have ended
    (pkg/controller/jobframework/reconciler.go: finalize, IsActive). A ResourceQuota counts pods until they
    have, so that with the next job's they are no more than the team may have; controllers of jobs retry.
    """
    allowed: Counter[str] = Counter()
    present: Counter[str] = Counter()
    for share in shares_of(team, context.stack.queues, context.stack.pools):
        resource = context.pools[share.pool].accelerator_resource
        allowed[resource] += share.allowed
        present[resource] += share.present
    return {f"requests.{each}": allowed[each] for each in sorted(allowed) if allowed[each] < present[each]}


def _object(api: str, kind: str, team: TeamSpec, spec: dict[str, Any]) -> Manifest:
    about = metadata(LIMITS, names.team_namespace(team.name))
    return {"apiVersion": api, "kind": kind, "metadata": about, "spec": spec}
