"""Names of the toolchain's artifacts that a stack needs: for previews, for an embedded cluster, and for
programs with the component package.
"""

from collections.abc import Iterable, Iterator

from infra.stackfile import Stack

CHART_PARTS = (
    "chart/jobset",
    "chart/trainer",
    "chart/kueue",
    "manifest/mpi-operator",
    "manifest/provisioning-requests",
    "manifest/training-operator",
)
"""Artifacts that render the charts of every program."""
ENGINE_PARTS = (
    "binary/pulumi",
    "binary/pulumi-resource-kubernetes",
    "binary/helm",
    "binary/kubectl",
    "plugin/python-exec",
    *CHART_PARTS,
)
"""Artifacts for every preview: the engine, its providers, and the charts."""
CLUSTER_PARTS = (
    "binary/kube-apiserver",
    "binary/kube-controller-manager",
    "binary/kube-scheduler",
    "binary/kube-proxy",
    "binary/kubelet",
    "binary/coredns",
    "binary/network-policies",
)
"""Artifacts of the embedded cluster, besides Debian's packages and the images."""
PACKAGE_PARTS = ("binary/pulumi-codegen", "binary/pulumi-language-yaml")
"""Artifacts for programs that use the component package, if the engine was built without languages."""


def host_parts(stack: Stack, names: Iterable[str]) -> Iterator[str]:
    """Yield what of all artifacts an embedded cluster of this stack needs of the host, and runs as images."""
    left_out = () if stack.operators.training_operator else ("image/training-operator",)
    for name in names:
        if name.startswith(("package/", "image/")) and name not in left_out:
            yield name
