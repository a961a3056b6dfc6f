"""Policy: what installs or creates objects that no policy sees (Helm releases, templates of clouds, GitOps,
scripts) is on the allow list.
"""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Violation, texts

SCRIPT = "command:*"
CREATES = re.compile(
    r"\b(kubectl|oc)\b.*\b(apply|create|replace|run|patch)\b|\bhelm\b.*\b(install|upgrade)\b|^kind:\s*\w"
    r"|\bterraform apply|\baws \S+ (create|put|run|deploy)|\b(gcloud|az)\b.*\b(create|deploy|apply)\b",
    re.MULTILINE,
)
"""Commands, and manifests, by which a script creates what would be a resource."""
NAMES = ("chart", "name", "metadata.name", "typeName", "spec.source.chart")
REVIEWED = (
    "aws-dranet:1.0.0",
    "cluster-autoscaler:9.59.0",
    "csi-driver-nfs:4.13.4",
    "dra-driver-nvidia-gpu:0.4.1",
    "gpu-operator-charts:v1.5.1",
    "gpu-operator:v26.3.3",
    "network-operator:26.4.0",
)
"""Vendors' charts, by name and version, that were read for this release of Trainyard, which installs them."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A carrier hides its objects in its provider, a controller or a script."""
    if resource.type.startswith("command:") and not any(
        isinstance(value, str) and CREATES.search(value) for _, _, value in resource.props.leaves
    ):
        return
    names = [str(found) for name in NAMES if (found := resource.props.get(name))]
    named = [*names, f"{resource.type}::{resource.name}"]
    allowed = resource.parameters["allowed"]
    if not any(fnmatchcase(name, pattern) for name in named for pattern in allowed):
        path = "chart" if resource.type.startswith("kubernetes:helm.sh/") else "type"
        got = names[0] if names and path == "chart" else resource.type
        chart = f"{got.rpartition('/')[2]}:{resource.props.get('version', '')}"
        seen = "resources that policies see, such as helm.v4.Chart renders"
        is_reviewed = path == "chart" and chart in resource.parameters["reviewed"]
        yield Violation(path, got, seen, is_advice=is_reviewed)


POLICY = Policy(
    name="kubernetes-hidden-objects",
    title="Objects are visible to policies",
    reason="A Helm release, a template and a GitOps application are opaque: no policy sees into them.",
    remedy="Render the objects into resources, or add the reviewed chart or `type::name` to `allowed`.",
    types=(
        "kubernetes:helm.sh/v3:Release", "kubernetes:*.fluxcd.io/*", "kubernetes:argoproj.io/*:Application*",
        "aws:cloudformation/stack*:*", "aws:cloudcontrol/resource:Resource",
        "azure-native:resources:Deployment*", "azure:core/*TemplateDeployment*", "gcp:deploymentmanager/*",
        SCRIPT,
    ),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CM-3", "NIST SP 800-53 CM-6"),
    parameters={
        "allowed": texts("Patterns of charts, or of `type::name`, that were reviewed by other means."),
        "reviewed": texts("Charts, as `name:version`, advised, not refused: Trainyard's.", *REVIEWED),
    },
)  # fmt: skip
