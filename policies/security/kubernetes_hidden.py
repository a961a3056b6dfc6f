"""Policy: Helm releases install only charts on the allow list, since policies cannot see the objects inside a
release.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Violation


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A release renders its objects inside the provider, where no policy sees them."""
    chart = resource.props.get("chart", "")
    if not any(fnmatchcase(chart, pattern) for pattern in resource.parameters["allowed"]):
        yield Violation("chart", chart, "a chart whose objects are resources, such as helm.v4.Chart")


POLICY = Policy(
    name="kubernetes-hidden-objects",
    title="Objects of charts are visible to policies",
    reason="A Helm release is one opaque resource: no policy sees the privileged pods inside it.",
    remedy="Render the chart into resources, or add the reviewed chart to `allowed`.",
    types=("kubernetes:helm.sh/v3:Release",),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CM-3", "NIST SP 800-53 CM-6"),
    parameters={
        "allowed": {
            "type": "array",
            "items": {"type": "string"},
            "default": [],
            "description": "Patterns of charts that were reviewed by other means.",
        }
    },
)
