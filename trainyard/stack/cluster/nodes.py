"""Compares a cluster's version, distribution and nodes with the stack file."""

from collections.abc import Iterator

import catalog
from infra.clients.kubernetes import Object
from infra.errors import Problem
from infra.stackfile import Stack
from infra.stackfile.target import supported_minors
from trainyard.stack.cluster.operators import mode_of
from trainyard.stack.cluster.seen import ClusterSeen

_UNSUPPORTED = {
    "k0s": "its containerd merges wrongly what the operator's toolkit writes, and the node fails (k0s#6547)",
    "Talos": "its nodes cannot compile a driver: NVIDIA comes as a system extension",
}
"""Distribution → why only its owner can install the GPU Operator."""
_MARKS = ("k3s", "rke2", *_UNSUPPORTED)
"""Distributions, by the mark in their version, whose nodes run another containerd than the system's."""


def version_fits(stack: Stack, seen: ClusterSeen) -> Iterator[Problem]:
    """The API server's version is that of the file, and one that this release was tested with."""
    tested = supported_minors(stack.target.kind)
    said = stack.target.kubernetes_minor
    if _number(seen.minor) < _number(tested[0]):
        yield Problem(
            "the cluster's version",
            f"Kubernetes {seen.version}",
            f"{tested[0]} or newer",
            "upgrade the cluster: tenancy needs ValidatingAdmissionPolicy (1.30), fabrics"
            " resource.k8s.io/v1 (1.34)",
        )
    elif seen.minor in tested and seen.minor != said:
        in_account = getattr(stack.target, "existing_cluster", None)
        path = "target.existing_cluster.version" if in_account else "target.kubernetes_version"
        got = f"{said}, and the cluster runs {seen.version}"
        fix = f'write `{path.rpartition(".")[2]}: "{seen.minor}"`'
        yield Problem(path, got, f"what runs: {seen.minor}", fix)


def untested_version(stack: Stack, seen: ClusterSeen) -> str:
    """A sentence about an API server that is newer than all that were tested; empty for another."""
    tested = supported_minors(stack.target.kind)
    if _number(seen.minor) <= _number(tested[-1]):
        return ""
    return f"the cluster runs {seen.version}; this release was tested with {', '.join(tested)}"


def _number(minor: str) -> tuple[int, ...]:
    return tuple(int(part) for part in minor.split(".") if part.isdecimal())


def distribution_fits(stack: Stack, seen: ClusterSeen) -> Iterator[Problem]:
    """OpenShift is refused; others need a setting of the GPU Operator, which two have."""
    if any(version.startswith("security.openshift.io/") for version, _ in seen.kinds):
        yield Problem(
            "the cluster",
            "OpenShift (it serves security.openshift.io)",
            "a cluster without SecurityContextConstraints: these refuse the fixed user 1000 of jobs and the"
            " volumes' Job, and its DNS answers at port 5353, which team namespaces may not reach",
            "use another cluster: this release does not support OpenShift",
        )
    if mode_of(stack, "target.gpu_operator") != "install":
        return
    runs, said = distribution_of(seen), getattr(stack.target, "container_runtime", "containerd")
    if why := _UNSUPPORTED.get(runs):
        fix = f"install the GPU Operator as {runs} documents it, and write `target.gpu_operator: existing`"
        yield Problem("target.gpu_operator", f"install, on {runs}", f"existing: {why}", fix)
    elif seen.nodes and runs != said:
        got, fix = f"{said}, and the nodes run {runs}", f"write `container_runtime: {runs}`"
        yield Problem("target.container_runtime", got, f"what runs: {runs}", fix)


def distribution_of(seen: ClusterSeen) -> str:
    """The distribution whose own containerd the nodes run, by the first mark; `containerd`: the system's."""
    infos = [(node.get("status") or {}).get("nodeInfo") or {} for node in seen.nodes]
    marks = [f"{each.get('kubeletVersion', '')} {each.get('osImage', '')}".lower() for each in infos]
    return next((name for mark in marks for name in _MARKS if name.lower() in mark), "containerd")


def nodes_fit(stack: Stack, seen: ClusterSeen) -> Iterator[Problem]:
    """Nodes that the file names exist, and have the accelerators of their pool once a plugin serves them."""
    nodes = {node["metadata"]["name"]: node for node in seen.nodes}
    counts = {pool.name: pool.accelerator.count for pool in stack.pools if pool.accelerator}
    for index, leaf in enumerate(getattr(stack.target, "leaves", None) or ()):
        for pool, members in leaf.nodes.items():
            path = f"target.leaves[{index}].nodes.{pool}"
            if missing := [name for name in members if name not in nodes]:
                known = ", ".join(sorted(nodes)[:8]) + (", …" if len(nodes) > 8 else "")
                got = f"{', '.join(missing)}: no such node"
                yield Problem(path, got, f"nodes of the cluster: {known}", "see `kubectl get nodes`")
            for name in members:
                has = accelerators_of(nodes[name]) if name in nodes else 0
                if has and pool in counts and has != counts[pool]:
                    got = f"node {name} offers {has} accelerators"
                    fix = "correct the pool's accelerator, or look for broken or shared (MIG) devices"
                    yield Problem(path, got, f"{counts[pool]} per node, as in pool {pool}", fix)


def accelerators_of(node: Object) -> int:
    """Accelerators that a node's device plugin offers; 0 while none runs."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return max((int(allocatable.get(name, 0)) for name in catalog.accelerator_resources()), default=0)
