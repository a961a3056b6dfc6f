"""Policy: launchers, masters and heads of distributed jobs (MPI, PyTorch, Ray) and rendezvous stores do not
run on spot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from policies.capacity import is_accelerated, selects_spot
from policies.policy import Policy, Resource, Violation
from policies.unknowns import PropertyBlock, Value
from policies.workloads import namespaced_name, placements

LAUNCHER_ROLES = ("launcher", "master", "head")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Launchers inside job objects, workloads that are rendezvous stores by name, and a cluster's MPI job."""
    if resource.type.startswith("trainyard:"):
        yield from _mpi_job(resource.props.block("stack"))
        return
    name = namespaced_name(resource).rpartition("/")[2]
    store = any(fnmatchcase(name, pattern) for pattern in resource.parameters["stores"])
    for pod in placements(resource):
        role = "rendezvous store" if store else _role(resource.props.data, pod)
        if role and selects_spot(pod):
            yield Violation(pod.path, f"a {role} that may run on spot", "on-demand nodes")


def _mpi_job(spec: PropertyBlock) -> Iterator[Violation]:
    """The launcher of the runtimes `mpi-…` is a node of the job, and runs where its queue's flavors are."""
    job = spec.block("job")
    if not job.get("runtime", "").startswith("mpi-"):
        return
    queue_of = {team.get("name"): team.get("queue") for team in spec.blocks("teams")}
    spot = {
        pool.get("name")
        for pool in spec.blocks("pools")
        if pool.get("capacity") == "spot" and is_accelerated(pool)
    }
    for queue in spec.blocks("queues"):
        flavors = [flavor.get("pool") for flavor in queue.blocks("flavors")]
        queue_name = job.get("queue") or queue_of.get(job.get("team"))
        if queue.get("name") == queue_name and spot.intersection(flavors):
            got = f"{job.get('runtime')} in queue {queue.get('name')}, whose flavors are {', '.join(flavors)}"
            yield Violation(job.at("runtime"), got, "a queue of on-demand and reserved pools")


def _role(data: Mapping[str, Value], pod: PropertyBlock) -> str:
    """The launcher's role, by a key or a `name` on the way to its pod; empty for others."""
    parts = pod.path.replace("[", ".[").split(".")
    value: Value = data
    for part in parts:
        value = value[int(part[1:-1])] if part.startswith("[") else value[part]
        for label in (part.removesuffix("GroupSpec"), *_names(value)):  # Ray's head is a `headGroupSpec`
            if isinstance(label, str) and label.lower() in LAUNCHER_ROLES:
                return label.lower()
    return ""


def _names(value: Value) -> list[Value]:
    """Names of the jobs that a block is about: its `name`, or the jobs whose pods it overrides (TrainJob)."""
    if not isinstance(value, dict):
        return []
    targets = value.get("targetJobs")
    named = [target.get("name") for target in targets] if isinstance(targets, list) else []
    return [value.get("name"), *named] if "template" in value else named


POLICY = Policy(
    name="spot-launchers",
    title="Launchers and rendezvous stores run on on-demand",
    reason="A failed worker loses its steps since the checkpoint; a failed launcher or store ends the job.",
    remedy="Select on-demand nodes for it, and do not tolerate the spot taint.",
    types=(
        "trainyard:infra:*Cluster",
        "kubernetes:apps/*",
        "kubernetes:batch/*",
        "kubernetes:core/v1:Pod*",
        "kubernetes:kubeflow.org/*",
        "kubernetes:trainer.kubeflow.org/*",
        "kubernetes:jobset.x-k8s.io/*",
        "kubernetes:ray.io/*",
    ),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-10",),
    parameters={
        "stores": {
            "type": "array",
            "items": {"type": "string"},
            "default": ["*etcd*", "*rendezvous*", "*rdzv*", "*tcpstore*"],
            "description": "Patterns of names of workloads that run a job's rendezvous.",
        }
    },
)
