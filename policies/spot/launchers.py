"""Policy: launchers, masters and heads of distributed jobs (MPI, PyTorch, Ray) and rendezvous stores do not
run on spot.
"""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from policies.capacity import selects_spot
from policies.policy import Policy, Resource, Violation, texts
from policies.unknowns import PropertyBlock, Value
from policies.workloads import namespaced_name, placements

LAUNCHER_ROLES = ("launcher", "master", "head")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Launchers inside job objects, and workloads that are rendezvous stores by name."""
    name = namespaced_name(resource).rpartition("/")[2]
    store = any(fnmatchcase(name, pattern) for pattern in resource.parameters["stores"])
    for pod in placements(resource):
        role = "rendezvous store" if store else _role(resource.props.data, pod)
        if role and selects_spot(pod):
            yield Violation(pod.path, f"a {role} that may run on spot", "on-demand nodes")


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
        "stores": texts(
            "Patterns of names of workloads that run a job's rendezvous.",
            "*etcd*",
            "*rendezvous*",
            "*rdzv*",
            "*tcpstore*",
        )
    },
)
