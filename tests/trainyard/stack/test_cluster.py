"""A cluster that exists is asked first: all that does not fit is found at once, and nothing is changed."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import yaml
from rich.console import Console

from engine.provider.cluster_claim import NAME, NAMESPACE
from infra.common.names import OWNER_ANNOTATION
from infra.errors import Problem
from infra.stackfile import Stack, parse
from tests.infra.stackfile.wrong import good
from tests.trainyard.stack.cluster_fakes import Object, definition, deployment, furnished, node, thing
from trainyard.stack.cluster.findings import ClusterFindings, examine
from trainyard.stack.cluster.hand_over import handed_over
from trainyard.stack.cluster.inspect import show_cluster

OWNER = "trainyard/datacenter"
FLUX = {f"kustomize.toolkit.fluxcd.io/{key}": value for key, value in {"name": "q", "namespace": "f"}.items()}
HELM = {"meta.helm.sh/release-name": "theirs", "meta.helm.sh/release-namespace": "platform"}
PLATFORM = "urn:pulumi:mine::trainyard::trainyard:platform:"
NODES = ("n-1", "n-2")
QUEUES = "clusterqueues.kueue.x-k8s.io"
JOBSETS = "jobsets.jobset.x-k8s.io"
TRAINJOBS = "trainjobs.trainer.kubeflow.org"
PATTERNS, PATCHES = "spec.failurePolicy.rules.onJobFailureMessagePatterns", "spec.runtimePatches"


def onprem(operators: Mapping[str, str] | None = None, **target: Any) -> Stack:
    """A stack of one node with eight GPUs, and one for the system."""
    data = good("onprem")
    for each in data["pools"]:
        each["nodes"] = 1
    for queue in data["queues"]:
        for flavor in queue["flavors"]:
            flavor.pop("quota", None)
    leaf = {"name": "leaf-1", "spine": "s", "nodes": {"gpu": [NODES[0]], "system": [NODES[1]]}}
    data["target"] |= {"cluster": {"context": "datacenter"}, "leaves": [leaf], **target}
    data.pop("job", None)
    return parse({**data, "operators": dict(operators or {})})


def announced(*objects: Object, layer: str = "Namespaces") -> list[Mapping[str, Any]]:
    """States of objects that an `up` would create, as the engine's events have them."""
    states: list[Mapping[str, Any]] = []
    for each in objects:
        group = each["apiVersion"] if "/" in each["apiVersion"] else f"core/{each['apiVersion']}"
        kind = f"kubernetes:{group}:{each['kind']}"
        urn = f"urn:pulumi:mine::trainyard::trainyard:platform:{layer}${kind}::{each['metadata']['name']}"
        states.append({"type": kind, "urn": urn, "inputs": each})
    return states


def found(
    *objects: Object, stack: Stack | None = None, to_create: Sequence[Mapping[str, Any]] = (), **cluster: Any
) -> ClusterFindings:
    nodes = [node(name, gpus=8 if name == NODES[0] else 0) for name in NODES]
    with furnished(*nodes, *objects, **cluster) as api:
        return examine(api, stack or onprem(), OWNER, to_create)


def only(findings: ClusterFindings) -> Problem:
    (problem,) = findings.problems
    return problem


@pytest.mark.parametrize(
    ("version", "path"),
    [
        ("v1.29.9", "the cluster's version"),
        ("v1.33.4", "the cluster's version"),
        ("v1.34.2-gke.1013000", "target.kubernetes_version"),
        ("v1.34.1+k3s1", "target.kubernetes_version"),
        ("v1.35.4", ""),
        ("v1.35.9+rke2r1", ""),
        ("v1.36.0", ""),
    ],
)
def test_the_api_servers_version_is_compared_with_the_file_and_with_what_was_tested(
    version: str, path: str
) -> None:
    findings = found(version=version)
    assert [each.path for each in findings.problems] == ([path] if path else [])
    assert all(version in each.got for each in findings.problems)
    assert bool(findings.note) == version.startswith("v1.36")


def test_a_file_with_the_clusters_own_minor_version_fits() -> None:
    stack = onprem(kubernetes_version="1.34")
    assert found(stack=stack, version="v1.34.2-gke.1013000").problems == ()


@pytest.mark.parametrize(
    ("metadata", "whose"),
    [
        ({"annotations": HELM}, "Helm release theirs in platform"),
        ({"annotations": {"argocd.argoproj.io/tracking-id": "queues:apps/x"}}, "Argo CD application queues"),
        ({"labels": FLUX}, "Flux Kustomization f/q"),
        ({"labels": {"olm.owner": "kueue-operator.v1"}}, "OLM (kueue-operator.v1)"),
        ({"annotations": {OWNER_ANNOTATION: "trainyard/dev"}}, "stack trainyard/dev"),
    ],
)
def test_an_operator_that_is_there_refuses_install_with_its_owner_and_the_line_to_write(
    metadata: dict[str, Any], whose: str
) -> None:
    kueue = definition(QUEUES, ["v1beta1", "v1beta2"], **metadata)
    running = deployment("kueue-controller-manager", "queues", "registry.k8s.io/kueue/kueue:v0.18.4")
    problem = only(found(kueue, running))
    assert problem.path == "operators.kueue"
    assert problem.got == f"it is there, of {whose} (registry.k8s.io/kueue/kueue:v0.18.4 in queues)"
    assert problem.fix == "write `operators.kueue: existing`"


def test_what_the_stack_itself_has_installed_is_no_finding() -> None:
    claim = thing("v1", "ConfigMap", NAME, NAMESPACE, data={"owner": OWNER})
    ours = definition(QUEUES, ["v1beta2"], annotations={OWNER_ANNOTATION: OWNER})
    namespace = thing("v1", "Namespace", "kueue-system", annotations={OWNER_ANNOTATION: OWNER})
    assert found(claim, ours, namespace, to_create=announced(namespace)).problems == ()


@pytest.mark.parametrize(
    ("key", "there", "words"),
    [
        ("kueue", definition(QUEUES, ["v1beta1"]), "Kueue 0.15 or newer"),
        ("jobset", definition(JOBSETS, ["v1alpha2"], "spec.failurePolicy.rules"), "JobSet 0.10 or newer"),
        ("trainer", definition(TRAINJOBS, ["v1alpha1"], "spec.podTemplateOverrides"), "Trainer 2.2 or newer"),
        ("mpi", definition("mpijobs.kubeflow.org", ["v1"]), "MPI operator 0.3 or newer"),
        ("kueue", None, "a cluster with Kueue"),
        ("trainer", None, "a cluster with Kubeflow Trainer"),
    ],
)
def test_an_existing_operator_that_lacks_what_jobs_need_is_refused_with_the_least_release(
    key: str, there: Object | None, words: str
) -> None:
    problem = only(found(*[there] if there else (), stack=onprem({key: "existing"})))
    assert problem.path == f"operators.{key}"
    assert words in problem.allowed


@pytest.mark.parametrize(
    ("key", "there"),
    [
        ("kueue", definition(QUEUES, ["v1beta1", "v1beta2"])),
        ("kueue", definition(QUEUES, ["v1beta2"])),
        ("jobset", definition(JOBSETS, ["v1alpha2"], PATTERNS)),
        ("trainer", definition(TRAINJOBS, ["v1alpha1"], PATCHES)),
        ("mpi", definition("mpijobs.kubeflow.org", ["v1", "v2beta1"])),
    ],
)
def test_an_existing_operator_of_a_supported_release_fits(key: str, there: Object) -> None:
    assert found(there, stack=onprem({key: "existing"})).problems == ()


def test_training_operators_mpijobs_are_named_as_its_own() -> None:
    problem = only(found(definition("mpijobs.kubeflow.org", ["v1"])))
    assert problem.path == "operators.mpi"
    assert "training-operator has its definition, with v1 only" in problem.got
    assert "operators.mpi: off" in problem.fix


def kueue(**config: Any) -> list[Object]:
    """Kueue of others, with its configuration."""
    text = yaml.safe_dump({"integrations": {"frameworks": ["trainer.kubeflow.org/trainjob"]}, **config})
    data = {"controller_manager_config.yaml": text}
    return [
        definition(QUEUES, ["v1beta2"]),
        deployment("kueue-controller-manager", "kueue-system", "registry.k8s.io/kueue/kueue:v0.18.4"),
        thing("v1", "ConfigMap", "kueue-manager-config", "kueue-system", data=data),
    ]


THEIRS = ["kube-system", "kueue-system"]
SYSTEMS = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": THEIRS}
OURS = {"key": "app.kubernetes.io/managed-by", "operator": "NotIn", "values": ["trainyard"]}


@pytest.mark.parametrize(
    ("config", "merged"),
    [
        (
            {"integrations": {"frameworks": ["batch/job", "pod"]}},
            {"integrations": {"frameworks": ["batch/job", "pod", "trainer.kubeflow.org/trainjob"]}},
        ),
        (
            {"manageJobsWithoutQueueName": True},
            {"managedJobsNamespaceSelector": {"matchExpressions": [SYSTEMS, OURS]}},
        ),
        (
            {"featureGates": {"ReclaimablePods": True, "Other": True}},
            {"featureGates": {"ReclaimablePods": False, "Other": True}},
        ),
        (
            {"featureGates": {"TopologyAwareScheduling": False}},
            {"featureGates": {"TopologyAwareScheduling": True}},
        ),
    ],
)
def test_an_existing_kueue_gets_the_yaml_to_merge(config: dict[str, Any], merged: dict[str, Any]) -> None:
    stack = onprem({"kueue": "existing", "mpi": "off"})
    problem = only(found(*kueue(**config), stack=stack))
    assert problem.fix.startswith("merge this into ConfigMap kueue-system/kueue-manager-config")
    assert yaml.safe_load(problem.fix.partition(":\n")[2]) == merged


def test_upstreams_own_configuration_of_kueue_fits() -> None:
    frameworks = ["batch/job", "kubeflow.org/mpijob", "jobset.x-k8s.io/jobset", "pod", "deployment"]
    integrations = {"frameworks": [*frameworks, "statefulset", "trainer.kubeflow.org/trainjob"]}
    assert found(*kueue(integrations=integrations), stack=onprem({"kueue": "existing"})).problems == ()


def test_controllers_in_other_namespaces_are_to_be_named() -> None:
    there = [
        definition(QUEUES, ["v1beta2"]),
        deployment("kueue", "openshift-kueue", "registry.redhat.io/kueue/kueue-rhel9@sha256:0", "manager"),
    ]
    problem = only(found(*there, stack=onprem({"kueue": "existing"})))
    assert problem.path == "admission.controllers"
    assert "controllers: [openshift-kueue/manager]" in problem.fix


def test_openshift_is_refused_with_its_reasons() -> None:
    groups = {
        "security.openshift.io/v1": [("SecurityContextConstraints", "securitycontextconstraints", False)]
    }
    problem = only(found(groups=groups))
    assert "OpenShift" in problem.got
    assert "5353" in problem.allowed


@pytest.mark.parametrize(
    ("kubelet", "system"),
    [
        ("v1.35.4+k3s1", "Ubuntu 24.04"),
        ("v1.35.4+rke2r1", "SLES 15"),
        ("v1.35.4+k0s.0", "Debian 12"),
        ("v1.35.4", "Talos (v1.12.0)"),
    ],
)
def test_distributions_with_another_containerd_need_their_own_gpu_operator(kubelet: str, system: str) -> None:
    special = node("n-3", kubelet=kubelet, system=system)
    problem = only(found(special))
    assert problem.path == "target.gpu_operator"
    assert found(special, stack=onprem(gpu_operator="existing")).problems == ()


def test_nodes_that_do_not_exist_or_offer_other_accelerators_are_named() -> None:
    stack = onprem()
    with furnished(node(NODES[0], gpus=4), node("other")) as api:
        problems = examine(api, stack, OWNER, []).problems
    assert [each.got for each in problems] == [
        f"node {NODES[0]} offers 4 accelerators",
        f"{NODES[1]}: no such node",
    ]


def test_names_that_are_taken_are_all_listed_with_their_owners_and_choices() -> None:
    theirs = [
        thing("v1", "Namespace", "team-research"),
        thing("v1", "Namespace", "gpu-operator"),
        thing("storage.k8s.io/v1", "StorageClass", "shared", annotations=HELM),
        thing("scheduling.k8s.io/v1", "PriorityClass", "high"),
    ]
    mine = [*theirs, thing("v1", "Namespace", "free")]
    findings = found(*theirs, to_create=announced(*mine))
    assert [(each.path, each.got) for each in findings.problems] == [
        ("Namespace team-research", "exists, of others"),
        ("Namespace gpu-operator", "exists, of others"),
        ("StorageClass shared", "exists, of Helm release theirs in platform"),
        ("PriorityClass high", "exists, of others"),
    ]
    assert "`target.gpu_operator: existing`" in findings.problems[1].fix


def test_an_operators_objects_are_one_finding() -> None:
    roles = [
        thing("rbac.authorization.k8s.io/v1", "ClusterRole", f"kueue-{n}", annotations=HELM) for n in "abc"
    ]
    to_create = announced(*roles, layer="Kueue")
    assert only(found(*roles, to_create=to_create)).path == "ClusterRole kueue-a"
    there = definition(QUEUES, ["v1beta2"], annotations=HELM)
    assert only(found(there, *roles, to_create=to_create)).path == "operators.kueue"


def test_a_helm_release_of_the_same_name_is_found_by_helms_record() -> None:
    labels = {"owner": "helm", "name": "gpu-operator"}
    record = thing("v1", "Secret", "sh.helm.release.v1.gpu-operator.v3", "gpu-operator", labels=labels)
    urn = f"{PLATFORM}GpuOperator$kubernetes:helm.sh/v3:Release::gpu-operator"
    inputs = {"name": "gpu-operator", "namespace": "gpu-operator"}
    state = {"type": "kubernetes:helm.sh/v3:Release", "urn": urn, "inputs": inputs}
    problem = only(found(record, to_create=[state]))
    assert problem.path == "Release gpu-operator/gpu-operator"
    assert problem.fix.startswith("if they run it for you, write `target.gpu_operator: existing`")


def test_many_findings_come_at_once() -> None:
    there = [
        definition(QUEUES, ["v1beta2"], annotations=HELM),
        definition(TRAINJOBS, ["v1alpha1"]),
        definition("clusterpolicies.nvidia.com", ["v1"]),
        thing("v1", "Namespace", "team-research"),
        thing("v1", "ConfigMap", NAME, NAMESPACE, data={"owner": "trainyard/prod"}),
    ]
    to_create = announced(thing("v1", "Namespace", "team-research"))
    stack = onprem({"trainer": "existing"})
    paths = [
        each.path for each in found(*there, stack=stack, to_create=to_create, version="v1.33.1").problems
    ]
    assert paths == [
        "the cluster",
        "operators.kueue",
        "target.gpu_operator",
        "the cluster's version",
        "operators.trainer",
        "Namespace team-research",
    ]


def test_an_operator_that_becomes_existing_leaves_the_state_with_all_its_parts() -> None:
    component, bundle = f"{PLATFORM}Kueue::mine-kueue", "trainyard:kubernetes:CustomResourceDefinitions"
    queue = f"{PLATFORM}Queues$kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue::gpu"
    resources: list[Mapping[str, Any]] = [
        {"urn": component, "type": "trainyard:platform:Kueue"},
        {"urn": "role", "type": "kubernetes:rbac.authorization.k8s.io/v1:ClusterRole", "parent": component},
        {"urn": "namespace", "type": "kubernetes:core/v1:Namespace", "id": "kueue-system", "parent": "n"},
        {"urn": "team", "type": "kubernetes:core/v1:Namespace", "id": "team-research", "parent": "n"},
        {"urn": "definitions", "type": bundle, "inputs": {"definitions": {QUEUES: "digest"}}},
        {"urn": queue, "type": "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "parent": "queues"},
    ]
    assert list(handed_over(onprem(), resources)) == []
    left = list(handed_over(onprem({"kueue": "existing"}), resources))
    assert left == [("operators.kueue", [component, "role", "namespace", "definitions"])]
    assert list(handed_over(onprem({"kueue": "existing"}), resources[-1:])) == []


def test_a_cluster_without_a_stack_is_shown_with_the_stack_files_part() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    gpus = {**node("gpu-1", gpus=8), "metadata": {"name": "gpu-1", "labels": labels}}
    there = [
        gpus,
        node("cpu-1"),
        definition(QUEUES, ["v1beta2"], annotations=HELM),
        definition("clusterpolicies.nvidia.com", ["v1"]),
        deployment("kueue", "queues", "registry.k8s.io/kueue/kueue:v0.18.4", "manager"),
        thing("storage.k8s.io/v1", "StorageClass", "fast"),
    ]
    h100 = {"model": "h100", "count": 8}
    console = Console(record=True, width=120)
    with furnished(*there, version="v1.34.3") as api:
        show_cluster(api, "theirs", console)
    text = console.export_text()
    assert "Helm release theirs in platform" in text
    assert "storage classes: fast" in text
    assert yaml.safe_load(text.partition("follows from it:\n")[2]) == {
        "target": {
            "kind": "onprem",
            "cluster": {"context": "theirs"},
            "kubernetes_version": "1.34",
            "gpu_operator": "existing",
        },
        "pools": [
            {"name": "system", "role": "system", "nodes": 1},
            {"name": "h100", "capacity": "on-demand", "nodes": 1, "accelerator": h100},
        ],
        "operators": {"kueue": "existing"},
        "admission": {"controllers": ["queues/manager"]},
    }
