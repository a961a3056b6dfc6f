"""Policy: a job's deadline leaves time for its work and for two changeovers, each the time from a loss of
nodes to training again.
"""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation, parameter
from policies.unknowns import PropertyBlock

PREFIX = "trainyard.dev/"


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Work and two changeovers must fit, or not even on-demand can save the job.

    The bound is C0 + 2d ≤ R0 of Uniform Progress (NSDI 2024).
    """
    annotations = resource.props.block("metadata.annotations")
    deadline = _seconds(annotations, "deadline-seconds")
    if deadline is None:
        return
    work = _seconds(annotations, "work-seconds")
    if work is None:
        yield Violation(f"{annotations.path}[{PREFIX}work-seconds]", "nothing", "the work, in seconds")
        return
    changeover = _seconds(annotations, "changeover-seconds") or resource.parameters["changeover_seconds"]
    needed = work + 2 * changeover
    if needed > deadline:
        path = f"{annotations.path}[{PREFIX}deadline-seconds]"
        yield Violation(path, f"{deadline:g} s", f"{needed:g} s or more: the work and two changeovers")


def _seconds(annotations: PropertyBlock, name: str) -> float | None:
    value = annotations.entry(PREFIX + name)
    return None if value is None else float(value)


POLICY = Policy(
    name="spot-deadline",
    title="Deadlines are feasible",
    reason="If on-demand nodes cannot meet a deadline after two changeovers, no purchase can.",
    remedy="Move the deadline, shrink the work, or take more nodes.",
    types=(
        "kubernetes:batch/v1:Job",
        "kubernetes:jobset.x-k8s.io/*:JobSet",
        "kubernetes:kubeflow.org/*",
        "kubernetes:trainer.kubeflow.org/*:TrainJob",
    ),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-2(3)",),
    parameters={
        "changeover_seconds": parameter(
            "number",
            600,
            "Time from a failure until training continues, if the job does not state it.",
            minimum=0,
        )
    },
)
