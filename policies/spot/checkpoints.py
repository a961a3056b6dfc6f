"""Policy: pods with accelerators on spot have a volume or an environment variable for checkpoints outside
their node.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.capacity import selects_spot
from policies.policy import Policy, Resource, Violation, texts
from policies.unknowns import PropertyBlock
from policies.workloads import containers, pod_specs, trains

OF_THE_POD = ("emptyDir", "ephemeral")
"""Kinds of volumes that are deleted with the pod."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Pods with accelerators on spot mount or name storage for checkpoints that is not the node's."""
    patterns = resource.parameters["names"]
    for pod in pod_specs(resource):
        if selects_spot(pod) and trains(pod) and not _keeps(pod, patterns):
            yield Violation(
                pod.at("volumes"), "no checkpoints", f"a volume or variable {', '.join(patterns)}"
            )


def _keeps(pod: PropertyBlock, patterns: list[str]) -> bool:
    volumes = [volume for volume in pod.blocks("volumes") if not any(map(volume.has, OF_THE_POD))]
    names = [volume.get("name", "") for volume in volumes]
    names += [variable.get("name", "") for c in containers(pod) for variable in c.blocks("env")]
    return any(fnmatchcase(name.lower(), pattern) for name in names for pattern in patterns)


POLICY = Policy(
    name="spot-checkpoints",
    title="Jobs on spot store checkpoints",
    reason="Without checkpoints outside the node every reclaim restarts the training from the beginning.",
    remedy="Mount the checkpoint volume, or set the variable that names the checkpoint store.",
    types=(
        "kubernetes:batch/*",
        "kubernetes:core/v1:Pod",
        "kubernetes:jobset.x-k8s.io/*",
        "kubernetes:kubeflow.org/*",
        "kubernetes:trainer.kubeflow.org/*",
    ),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-9", "NIST SP 800-53 CP-10"),
    parameters={
        "names": texts(
            "Patterns of volumes and variables that count as checkpoint storage.", "*checkpoint*", "*ckpt*"
        )
    },
)
