"""Policy: images of containers and image volumes are pinned by digest, unless they are never pulled, have a
content hash as the tag where that is permitted, or are Trainyard's own operators (then it is advice).
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Violation, texts
from policies.workloads import TYPES, containers, pod_specs

DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
PINNED = "name@sha256:<64 hex digits>"
CONTENT_TAG = re.compile(r":[0-9a-f]{12,64}$")
OPERATORS = "kubernetes:apps/v1:"
RELEASED = (
    "docker.io/library/ubuntu:24.04",
    "docker.io/mpioperator/mpi-operator:*",
    "*.dkr.ecr.*.amazonaws.com/eks/aws-efa-k8s-device-plugin:v*",
    "gcr.io/gke-release/nri-device-injector:v*",
    "ghcr.io/kubeflow/trainer/trainer-controller-manager:v*",
    "ghcr.io/kubeflow/training-v1/training-operator:v*",
    "mcr.microsoft.com/oss/kubernetes-csi/*:v*",
    "mcr.microsoft.com/oss/v2/kubernetes-csi/*:v*",
    "registry.k8s.io/jobset/jobset:v*",
    "registry.k8s.io/kueue/kueue:v*",
    "us-docker.pkg.dev/gce-ai-infra/*:v*",
)
"""Images of Trainyard's operators and node software whose publishers' digests the release does not know."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Images of containers and volumes have a digest, or a content hash as the tag where that is permitted.

    An image that is imported onto the nodes needs neither: no registry can move it.
    """
    for violation in _by_tag(resource):
        yield replace(violation, is_advice=_is_released(resource, str(violation.got)))


def _is_released(resource: Resource, image: str) -> bool:
    """Whether an operator's image, or its copy in a mirror, is one that Trainyard installs."""
    patterns = resource.parameters["released"]
    return resource.type.startswith(OPERATORS) and any(
        fnmatchcase(image, form) for pattern in patterns for form in (pattern, f"*/{pattern}")
    )


def _by_tag(resource: Resource) -> Iterator[Violation]:
    allowed = resource.parameters["content_tagged"]
    for pod in pod_specs(resource):
        for container in containers(pod):
            image = container.get("image")
            # Without one it is a pattern or a patch: Kubernetes takes no such pod.
            if image and container.get("imagePullPolicy") != "Never" and not _is_pinned(image, allowed):
                yield Violation(container.at("image"), image, PINNED)
        for volume in pod.blocks("volumes"):
            source = volume.block("image")
            reference = source.get("reference", "")
            if reference and source.get("pullPolicy") != "Never" and not _is_pinned(reference, allowed):
                yield Violation(source.at("reference"), reference, PINNED)


def _is_pinned(image: str, content_tagged: list[str]) -> bool:
    if DIGEST.search(image):
        return True
    return bool(CONTENT_TAG.search(image)) and any(fnmatchcase(image, pattern) for pattern in content_tagged)


POLICY = Policy(
    name="kubernetes-images-pinned",
    title="Container images are pinned by digest",
    reason="A tag can be moved, so what runs may differ from what was reviewed.",
    remedy="Name the image by its digest, or import it onto the nodes and set imagePullPolicy to Never.",
    types=TYPES,
    evaluate=evaluate,
    frameworks=("NIST SP 800-190 4.1.5", "NIST SP 800-53 CM-14", "SLSA v1.0 Build L3"),
    parameters={
        "content_tagged": texts(
            "Patterns of images whose tag is a hash of their content (12 hex digits or more).",
            "trainyard.local/*",
        ),
        "released": texts(
            "Patterns of operators' images that are advised, not refused, to have a digest.", *RELEASED
        ),
    },
)
