"""Names of the toolchain's artifacts that a stack needs: for every preview, and for an embedded cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from infra.spec import Stack

CHART_PARTS = (
    "chart/jobset",
    "chart/trainer",
    "chart/kueue",
    "manifest/mpi-operator",
    "manifest/provisioning-requests",
    "manifest/training-operator",
)
"""What every program renders."""
ENGINE_PARTS = (
    "binary/pulumi",
    "binary/pulumi-resource-kubernetes",
    "binary/helm",
    "binary/kubectl",
    "plugin/python-exec",
    *CHART_PARTS,
)
"""What every preview needs: the engine, its providers, and the charts that it renders."""
CLUSTER_PARTS = (
    "binary/kube-apiserver",
    "binary/kube-controller-manager",
    "binary/kube-scheduler",
    "binary/kube-proxy",
    "binary/kubelet",
    "binary/coredns",
    "binary/network-policies",
)
"""What the embedded cluster is made of, beside Debian's packages and the images."""
PACKAGE_PARTS = ("binary/pulumi-codegen", "binary/pulumi-language-yaml")
"""What programs that use the package need where the engine was built, and has no languages' parts with it."""


def host_parts(stack: Stack, names: Iterable[str]) -> Iterator[str]:
    """Yield what of all artifacts an embedded cluster of this stack needs of the host, and runs as images."""
    left_out = () if stack.operators.legacy_v1 else ("image/training-operator",)
    for name in names:
        if name.startswith(("package/", "image/")) and name not in left_out:
            yield name
