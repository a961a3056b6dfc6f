"""A cluster that exists is asked first: all that does not fit is found at once, and nothing is changed."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from engine.provider.cluster_claim import NAME, NAMESPACE
from infra.common.names import OWNER_ANNOTATION
from infra.errors import Problem
from infra.stackfile import Stack, parse
from tests.infra.stackfile.wrong import good
from tests.objects import Object, thing
from tests.tables import table
from tests.trainyard.stack.cluster_fakes import definition, deployment, furnished, node
from trainyard.stack.cluster.findings import ClusterFindings, examine
from trainyard.stack.cluster.hand_over import handed_over
from trainyard.stack.cluster.inspect import show_cluster
from trainyard.stack.cluster.names_taken import forget_begun, planned

OWNER = "trainyard/datacenter"
PLATFORM = "urn:pulumi:mine::trainyard::trainyard:platform:"
NODES = ("n-1", "n-2")
QUEUES = "clusterqueues.kueue.x-k8s.io"
TRAINJOBS = "trainjobs.trainer.kubeflow.org"
RECORDED = table(__file__, "recorded")
OTHERWISE = "rename or remove theirs, or run this stack on another cluster"
HELM = RECORDED["owners"]["Helm release theirs in platform"]["annotations"]


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


@pytest.mark.parametrize(("version", "path"), RECORDED["versions"].items())
def test_the_api_servers_version_is_compared_with_the_file_and_with_what_was_tested(
    version: str, path: str
) -> None:
    findings = found(version=version)
    assert [each.path for each in findings.problems] == ([path] if path else [])
    assert all(version in each.got for each in findings.problems)
    assert bool(findings.notes) == version.startswith("v1.36")


def test_a_file_with_the_clusters_own_minor_version_fits() -> None:
    stack = onprem(kubernetes_version="1.34")
    assert found(stack=stack, version="v1.34.2-gke.1013000").problems == ()


@pytest.mark.parametrize(("whose", "metadata"), RECORDED["owners"].items())
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
    ("key", "release"),
    [(key, release) for key, each in RECORDED["operators"].items() for release in each["releases"]],
)
def test_an_existing_operator_of_a_recorded_release_fits_or_is_refused_with_the_least_one(
    key: str, release: str
) -> None:
    recorded = RECORDED["operators"][key]
    facts = recorded["releases"][release]
    serves = facts.get("serves", ())
    there = [definition(recorded["definition"], serves, *facts.get("has", ()))] if serves else []
    problems = found(*there, stack=onprem({key: "existing"})).problems
    assert [each.path for each in problems] == ([f"operators.{key}"] if "lacks" in facts else [])
    assert all(facts["lacks"] in each.allowed for each in problems)


@pytest.mark.parametrize(("name", "line"), RECORDED["vendors"].items())
def test_vendors_software_of_others_is_named_and_the_stacks_known(name: str, line: dict[str, Any]) -> None:
    there = definition(name, ["v1"])  # as Helm leaves it: without a mark
    assert [each.fix for each in found(there).problems] == [f"write `target.{key}: existing`" for key in line]
    assert found(there, stack=onprem(**line)).problems == ()
    ours = thing("v1", "Namespace", "gpu-operator", annotations={OWNER_ANNOTATION: OWNER})
    assert found(there, ours).problems == ()


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


@pytest.mark.parametrize("config", RECORDED["kueue"])
def test_an_existing_kueue_fits_or_gets_the_yaml_to_merge(config: dict[str, Any]) -> None:
    stack = onprem({"kueue": "existing", "mpi": "off"})
    asked = {key: value for key, value in config.items() if key != "merged"}
    fixes = [each.fix.partition(":\n") for each in found(*kueue(**asked), stack=stack).problems]
    assert all(where.startswith("merge this into ConfigMap kueue-system/kueue-m") for where, *_ in fixes)
    assert [yaml.safe_load(text) for *_, text in fixes] == config["merged"]


def test_controllers_in_other_namespaces_are_to_be_named() -> None:
    there = [
        definition(QUEUES, ["v1beta2"]),
        deployment("kueue", "openshift-kueue", "registry.redhat.io/kueue/kueue-rhel9@sha256:0", "manager"),
    ]
    problem = only(found(*there, stack=onprem({"kueue": "existing"})))
    assert problem.path == "admission.controllers"
    assert "controllers: [openshift-kueue/manager]" in problem.fix


def test_openshift_is_refused_with_its_reasons() -> None:
    kind = ("SecurityContextConstraints", "securitycontextconstraints", False)
    problem = only(found(groups={"security.openshift.io/v1": [kind]}))
    assert "OpenShift" in problem.got
    assert "5353" in problem.allowed


@pytest.mark.parametrize(("marks", "line"), RECORDED["distributions"].items())
def test_distributions_with_another_containerd_have_their_line(marks: str, line: dict[str, Any]) -> None:
    kubelet, _, system = marks.partition(" ")
    special = node("n-3", kubelet=f"v1.35.4{kubelet}", system=system)
    problem = only(found(special))
    ((key, value),) = line.items()
    assert problem.path == f"target.{key}" and f"{key}: {value}`" in problem.fix
    assert found(special, stack=onprem(**line)).problems == ()
    assert only(found(stack=onprem(container_runtime="k3s"))).fix == "write `container_runtime: containerd`"


def test_nodes_that_do_not_exist_or_offer_other_accelerators_are_named() -> None:
    stack = onprem()
    with furnished(node(NODES[0], gpus=4), node("other")) as api:
        problems = examine(api, stack, OWNER, []).problems
    expected = [f"node {NODES[0]} offers 4 accelerators", f"{NODES[1]}: no such node"]
    assert [each.got for each in problems] == expected


def test_a_look_asks_as_often_for_500_nodes_as_for_two() -> None:
    asked: dict[int, list[str]] = {2: [], 500: []}
    for number, paths in asked.items():
        with furnished(*(node(f"n-{1 + n}", gpus=8 * (n == 0)) for n in range(number)), asked=paths) as api:
            examine(api, onprem(), OWNER, announced(thing("v1", "Namespace", "free")))
    assert sorted(asked[2]) == sorted(asked[500])


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


def test_an_object_that_equals_the_stacks_may_be_used_and_no_other() -> None:
    def storage(server: str) -> Object:
        return thing("storage.k8s.io/v1", "StorageClass", "nfs", parameters={"server": server})

    def of(*there: Object, **target: Any) -> list[tuple[str, str, str]]:
        problems = found(*there, stack=onprem(**target), to_create=announced(storage("a"))).problems
        return [(each.path, each.got, each.fix) for each in problems]

    name, taken, line = "StorageClass nfs", "exists, of others", "target.existing_objects"
    differs = (name, f"{taken}, and differs in parameters", OTHERWISE)
    assert of(storage("a")) == [(name, taken, f"it equals the stack's: write `{line}: [{name}]`")]
    assert of(storage("a"), existing_objects=[name]) == []
    assert of(storage("b")) == of(storage("b"), existing_objects=[name]) == [differs]
    assert of(existing_objects=[name]) == [(line, name, "remove it: the stack creates its own")]


def test_an_operators_objects_are_one_finding() -> None:
    api = "rbac.authorization.k8s.io/v1"
    roles = [thing(api, "ClusterRole", f"kueue-{n}", annotations=HELM) for n in "abc"]
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
    ours = thing("v1", "Namespace", "gpu-operator", annotations={OWNER_ANNOTATION: OWNER})
    assert found(record, ours, to_create=[state]).problems == (), "begun by an `up` that was killed"
    deleted: list[str] = []
    spaces = [thing("v1", "Namespace", "gpu-operator"), ours]
    api: Any = SimpleNamespace(find=lambda _: spaces.pop(0), items=lambda *_: [record], delete=deleted.append)
    for number in range(len(spaces)):
        forget_begun(api, planned([state]), OWNER)
        assert len(deleted) == number
    problem = only(found(record, to_create=[state]))
    assert problem.path == "Release gpu-operator/gpu-operator"
    assert problem.fix.startswith("if they run it for you, write `target.gpu_operator: existing`")


@pytest.mark.parametrize(("state", "is_known"), [("s3://a", False), ("s3://moved", True), ("s3://b", False)])
def test_a_stack_of_the_same_name_in_another_state_is_another_one(state: str, is_known: bool) -> None:
    claim = thing("v1", "ConfigMap", NAME, NAMESPACE, data={"owner": OWNER, "state": "s3://a"})
    kind = {"type": "trainyard:kubernetes:ClusterClaim", "urn": "u::n", "inputs": {}}
    with furnished(node(NODES[0], gpus=8), node(NODES[1]), claim) as api:
        problems = examine(api, onprem(), OWNER, [{**kind, "is_known": is_known}], state).problems
    text = f"stack {OWNER} has it since unknown, with its state in s3://a"
    assert [each.got for each in problems] == ([text] if state == "s3://b" else [])


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
    problems = found(*there, stack=stack, to_create=to_create, version="v1.33.1").problems
    assert [each.path for each in problems] == [
        *("the cluster", "operators.kueue", "target.gpu_operator", "the cluster's version"),
        *("operators.trainer", "Namespace team-research"),
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
    named = onprem().teams[0].model_copy(update={"namespace": "team-research"})
    taken = onprem().model_copy(update={"teams": (named,)})
    assert list(handed_over(taken, resources)) == [("teams[0].namespace", ["team"])]


def test_a_cluster_without_a_stack_is_shown_with_the_stack_files_part() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    gpus = {**node("gpu-1", gpus=8), "metadata": {"name": "gpu-1", "labels": labels}}
    there = [
        gpus,
        node("cpu-1", kubelet="v1.34.3+rke2r1"),
        definition(QUEUES, ["v1beta2"], annotations=HELM),
        definition("clusterpolicies.nvidia.com", ["v1"]),
        deployment("kueue", "queues", "registry.k8s.io/kueue/kueue:v0.18.4", "manager"),
        thing("storage.k8s.io/v1", "StorageClass", "fast"),
    ]
    console = Console(record=True, width=120)
    with furnished(*there, version="v1.34.3") as api:
        show_cluster(api, "theirs", console)
    text = console.export_text()
    assert "Helm release theirs in platform" in text
    assert "storage classes: fast" in text
    assert yaml.safe_load(text.partition("follows from it:\n")[2]) == table(__file__, "theirs")
