"""Policy: clusters, TrainJobs and pods request and configure their nodes' fabric, so that NCCL does not fall
back to TCP silently.
"""

import re
from collections.abc import Iterator

from catalog import fabric_lint
from catalog.fabric_lint import Fault
from policies.policy import Policy, Resource, Violation
from policies.rules import independent
from policies.unknowns import KnownValues, PropertyBlock, Value
from policies.workloads import TYPES, pod_specs, trains

COPIES = ("replicas", "parallelism", "numNodes")
"""Properties around a pod template that determine the number of pods."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A cluster's spec, a TrainJob, or every pod that a workload makes."""
    if resource.type.startswith("trainyard:infra:"):
        spec = resource.props.block("stack")
        # Simulated accelerators have no fabric.
        yield from _violations(spec, fabric_lint.stack(KnownValues(spec.data, spec.path)))
    elif resource.type.endswith(":TrainJob"):
        spec = resource.props.block("spec")
        yield from _violations(spec, fabric_lint.train_job(KnownValues(spec.data, spec.path)))
    else:
        yield from _pods(resource)


def _pods(resource: Resource) -> Iterator[Violation]:
    pods = list(pod_specs(resource))
    nodes = sum(_copies(resource.props.data, pod.path) for pod in pods if len(pods) > 1 and trains(pod))
    runtime = resource.type.endswith("TrainingRuntime")
    name = resource.props.get("metadata.name", "") if runtime else ""
    for pod in pods:
        # A runtime's jobs choose their number of nodes, so it must support several.
        number = 2 if runtime else nodes or _copies(resource.props.data, pod.path)
        template = resource.props.block(pod.path.rpartition(".")[0])
        spec, whole = (KnownValues(each.data, each.path) for each in (pod, template))
        faults = fabric_lint.pod(spec, number, name.partition("-")[2], whole)
        yield from _violations(pod, faults, template)


@independent
def _violations(
    block: PropertyBlock, faults: Iterator[Fault], template: PropertyBlock | None = None
) -> Iterator[Violation]:
    for fault in faults:
        owner = template if template and fault.path[0] == "metadata" else block
        yield Violation(owner.at(fault.where), fault.got, f"{fault.allowed} ({fault.fix})")


def _copies(data: Value, path: str) -> int:
    """Return the number of pods of the template at `path`; anything but a known number counts as several."""
    number = 1
    for name, index in [("", ""), *re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]:
        data = data[int(index)] if index else data[name] if name else data
        for key in COPIES if isinstance(data, dict) else ():
            value = data.get(key)
            number *= int(value or 1) if isinstance(value, int | float | None) else 2
    return number


POLICY = Policy(
    name="fabric-lint",
    title="Jobs use the fabric of their nodes",
    reason="NCCL silently falls back to TCP: the job runs at a fraction of its speed.",
    remedy="Request what `trainyard catalog fabrics` lists for the pods of this fabric.",
    types=("trainyard:infra:*Cluster", *TYPES),
    evaluate=evaluate,
    frameworks=("AWS EFA user guide: EFA with EKS", "NCCL user guide: shared memory"),
)
