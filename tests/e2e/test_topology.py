"""Jobs on simulated nodes with the labels of a data centre: the real Kueue places each pod.

The nodes are API objects without kubelets, so pods are placed and never run. They count as ready while
the node controller waits for a first heartbeat, 40 seconds.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from infra.common import names
from tests.e2e.stack import Declaration, LocalStack
from tests.objects import thing

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

NAMESPACE = "topology"
HOSTS_PER_LEAF, GPUS = 3, 8
LEVELS = (names.SPINE_LABEL, names.LEAF_LABEL, names.HOSTNAME_LABEL)
KUEUE = "kueue.x-k8s.io/v1beta2"
TOPOLOGY = {
    f"{spine}-{leaf}-{host}": {names.SPINE_LABEL: spine, names.LEAF_LABEL: f"{spine}-{leaf}"}
    for spine in ("spine-1", "spine-2")
    for leaf in ("leaf-1", "leaf-2")
    for host in range(HOSTS_PER_LEAF)
}
"""Node → its spine and leaf switches."""


def node(name: str, topology: dict[str, str]) -> Declaration:
    labels = {**topology, names.HOSTNAME_LABEL: name, names.POOL_LABEL: NAMESPACE}
    return thing("v1", "Node", name, labels=labels)


OFFERED = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(GPUS)}
CONDITION = {"type": "Ready", "status": "True", "reason": "Simulated", "message": "no kubelet"}
READY = {"status": {"capacity": OFFERED, "allocatable": OFFERED, "conditions": [CONDITION]}}


def queue() -> list[Declaration]:
    """Return a queue with quota for every simulated node, in a separate namespace."""
    quota = {"name": "nvidia.com/gpu", "nominalQuota": GPUS * len(TOPOLOGY)}
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": NAMESPACE, "resources": [quota]}]}
    levels = [{"nodeLabel": level} for level in LEVELS]
    selected = {"nodeLabels": {names.POOL_LABEL: NAMESPACE}, "topologyName": NAMESPACE}
    specs: dict[str, Declaration] = {
        "Topology": {"levels": levels},
        "ResourceFlavor": selected,
        "ClusterQueue": {"namespaceSelector": {}, "resourceGroups": [group]},
        "LocalQueue": {"clusterQueue": NAMESPACE},
    }
    places = {"LocalQueue": NAMESPACE}
    made = [thing(KUEUE, kind, NAMESPACE, places.get(kind, ""), spec=spec) for kind, spec in specs.items()]
    return [thing("v1", "Namespace", NAMESPACE), *made]


def job(name: str, pods: int, **asked: str) -> Declaration:
    """Return a job of whole nodes; `required` or `preferred` is a level of the topology."""
    annotations = {f"kueue.x-k8s.io/podset-{kind}-topology": level for kind, level in asked.items()}
    container = {"name": "train", "image": "simulated", "resources": {"limits": {"nvidia.com/gpu": GPUS}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    template = {"metadata": {"annotations": annotations}, "spec": pod}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    labels = {"kueue.x-k8s.io/queue-name": NAMESPACE}
    return thing("batch/v1", "Job", name, NAMESPACE, labels=labels, spec=spec)


@pytest.fixture
def datacentre(stack: LocalStack) -> Iterator[LocalStack]:
    """The local stack, with additional simulated nodes; objects of a test are deleted after it."""
    stack.apply(*queue(), *(node(name, topology) for name, topology in TOPOLOGY.items()))
    for name in TOPOLOGY:
        stack.kubectl("patch", "node", name, "--subresource=status", f"--patch={json.dumps(READY)}")
    yield stack
    stack.kubectl("delete", "jobs", "--all", "-n", NAMESPACE, "--wait=true")
    stack.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--force", "--grace-period=0")
    stack.kubectl("delete", "node", *TOPOLOGY)
    stack.kubectl("delete", "localqueue", NAMESPACE, "-n", NAMESPACE)
    for kind in ("clusterqueue", "resourceflavor", "topologies.kueue.x-k8s.io", "namespace"):
        stack.kubectl("delete", kind, NAMESPACE)


def hosts(stack: LocalStack, name: str, pods: int) -> list[str]:
    """Wait until Kueue has placed every pod of a job, and return where."""
    placed: list[str] = []

    def all_placed() -> bool:
        items: list[dict[str, Any]] = stack.get(
            "pods", "-n", NAMESPACE, f"--selector=batch.kubernetes.io/job-name={name}"
        )["items"]
        chosen = [(each["spec"].get("nodeSelector") or {}).get(names.HOSTNAME_LABEL) for each in items]
        placed[:] = [host for host in chosen if host]
        return len(placed) == pods

    stack.wait_until(all_placed, f"{pods} placed pods of {name}")
    return placed


def leaves(placed: list[str]) -> set[str]:
    return {TOPOLOGY[host][names.LEAF_LABEL] for host in placed}


def test_a_job_lands_within_one_leaf_and_on_the_fewest_where_it_cannot(datacentre: LocalStack) -> None:
    datacentre.apply(job("fits", HOSTS_PER_LEAF, preferred=names.LEAF_LABEL))
    fits = hosts(datacentre, "fits", HOSTS_PER_LEAF)
    assert len(set(fits)) == HOSTS_PER_LEAF
    assert len(leaves(fits)) == 1
    datacentre.apply(job("wide", HOSTS_PER_LEAF + 1, preferred=names.LEAF_LABEL))
    wide = hosts(datacentre, "wide", HOSTS_PER_LEAF + 1)
    assert len(leaves(wide)) == 2
    assert len({TOPOLOGY[host][names.SPINE_LABEL] for host in wide}) == 1


def test_a_job_that_must_have_one_leaf_waits_where_none_has_room(datacentre: LocalStack) -> None:
    datacentre.apply(job("must", HOSTS_PER_LEAF + 1, required=names.LEAF_LABEL))

    def refused() -> bool:
        items = datacentre.get("workloads.kueue.x-k8s.io", "-n", NAMESPACE)["items"]
        output = [
            each["message"] for item in items for each in (item.get("status") or {}).get("conditions", [])
        ]
        return any("topology" in message for message in output)

    datacentre.wait_until(refused, "a word of the queue on the topology")
    assert datacentre.get("job", "must", "-n", NAMESPACE)["spec"]["suspend"] is True
