"""Admission of a cloud's stack, served by a real API server: fabrics, residency, image digests and datasets.

`tests/e2e/test_tenancy.py` tries attacks and valid workloads on the embedded cluster, whose stack has neither
a fabric nor a residency. This module serves the admission policies of the shipped CoreWeave stack.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from engine.provider.custom_resource_definitions import CustomResourceDefinitions, digest
from infra.clients.kubernetes import ApiServer
from infra.common import names, quantities
from infra.program import declare
from infra.stackfile import load
from infra.stackfile.admission import AdmissionSpec
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.operators import OperatorsSpec
from tests.engine.progress import RecordedProgress
from tests.infra.api_server import ADMIN, JOB_CONTROLLER, BareServer, Manifest, api_server
from tests.infra.plan import Plan, artifacts, record, stack_file
from tests.policies.corpus import CONFIG, Case
from tests.policies.corpus import load as corpus
from tests.processes import wait_for
from tests.servers import kubeconfig_of
from tests.tables import table
from trainyard.stack.cluster.names_taken import Planned, taken
from trainyard.stack.cluster.pods import JOB, try_pods
from trainyard.stack.cluster.seen import look

TEAM = "team-research"
IMAGE = f"registry.example.com/mine@sha256:{'1' * 64}"
OURS = DatasetSpec.model_validate(
    {
        "name": "pile",
        "source": "s3://example-data/pile/",
        "digest": f"sha256:{'0' * 64}",
        "size": "100Gi",
        "public": True,
        "teams": ("research",),
    }
)
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
USER = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
MAIN = {"name": "main", "image": IMAGE, "securityContext": RESTRICTED}
WHOLE = {"nvidia.com/gpu": 8, "rdma/ib": 1}
CUSTOM = ("trainjobs.trainer.kubeflow.org", "tfjobs.kubeflow.org", "workloads.kueue.x-k8s.io")


@pytest.fixture(scope="module")
def found(rendered: Path) -> Plan:
    stack = load(stack_file("coreweave"))
    legacy = OperatorsSpec.model_validate({"training_operator": {"kinds": ("TFJob",)}})
    asked = {"admission": AdmissionSpec(digests=True), "datasets": (OURS,), "operators": legacy}
    allowed = tuple(CONFIG["trainyard:residency"]["allowed"])
    return record(lambda: declare(stack.model_copy(update=asked), artifacts(rendered), residency=allowed))


@pytest.fixture(scope="module")
def server(found: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BareServer]:
    """An API server with the namespaces, limits and admission policies of the platform."""
    policy = "ValidatingAdmissionPolicy"
    spied = pod(env=seen("NVIDIA_VISIBLE_DEVICES", "all"))
    with api_server(tmp_path_factory.mktemp("api-server")) as server:
        for each in definitions(found, *CUSTOM):
            server.apply(each)
        for kind in ("Namespace", "LimitRange", "ConfigMap", policy, f"{policy}Binding"):
            for name, each in found.named(kind).items():
                if kind != "ConfigMap" or name == "trainyard-admission/teams":
                    server.apply(each)
        wait_for(lambda: "NVIDIA_VISIBLE_DEVICES" in refusal(server, spied))
        attacks = (tf_job("Helper"), train_job(limits={}), EXTERNAL, WORKLOAD)
        for asked in ({**job(), "metadata": {**ABOUT, "labels": {}}}, *attacks):
            wait_for(partial(is_evaluated, server, asked))
        yield server


def is_evaluated(server: BareServer, asked: Manifest) -> bool:
    """Whether the API server has loaded the policy that refuses this object."""
    return "ValidatingAdmissionPolicy" in server.refusal(asked)


def definitions(found: Plan, *names: str) -> Iterator[Manifest]:
    """Yield these CustomResourceDefinitions of the plan's operators."""
    for bundle in found.named("CustomResourceDefinitions").values():
        for each in yaml.safe_load_all(Path(bundle["source"]).read_text()):
            if each and each["metadata"]["name"] in names:
                yield each


ABOUT = {"name": "trial", "namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": "default"}}


def seen(name: str, value: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value}]


def pod_spec(**container: Any) -> dict[str, Any]:
    return {"restartPolicy": "Never", "securityContext": USER, "containers": [{**MAIN, **container}]}


def pod(**container: Any) -> dict[str, Any]:
    """Return a pod as a controller creates it for a job that the queue has admitted to a pool."""
    spec = {**pod_spec(**container), "nodeSelector": {names.POOL_LABEL: "spot"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": ABOUT, "spec": spec}


def job(num_nodes: int = 1, annotations: Mapping[str, str] | None = None, **container: Any) -> dict[str, Any]:
    spec = {"parallelism": num_nodes, "suspend": True, "template": {"spec": pod_spec(**container)}}
    about = {**ABOUT, "annotations": dict(annotations or {})}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}


def refusal(server: BareServer, manifest: Manifest) -> str:
    return server.refusal(manifest, by=JOB_CONTROLLER)


def test_sound_work_is_admitted(server: BareServer) -> None:
    assert refusal(server, pod()) == ""
    assert server.refusal(job()) == ""


def test_a_job_of_several_nodes_on_a_fabric_names_its_network(server: BareServer) -> None:
    """Else NCCL silently uses TCP where the image lacks a library."""

    def refused(num_nodes: int, network: str, **limits: int) -> str:
        env = seen("NCCL_NET", network) if network else []
        return server.refusal(job(num_nodes, env=env, resources={"limits": limits}))

    assert "NCCL_NET: name this pool's network (IB)" in refused(2, "", **WHOLE)
    assert "rdma/ib" in refused(2, "IB", **{"nvidia.com/gpu": 8})
    for num_nodes, network, limits in (
        (2, "IB", WHOLE),
        (2, "SHARP", WHOLE),
        (2, "Socket", WHOLE),
        (1, "", WHOLE),
        (2, "", {}),
    ):
        assert refused(num_nodes, network, **limits) == ""


@pytest.mark.parametrize(
    ("limits", "sound"),
    [
        (WHOLE, True),
        ({**WHOLE, "hugepages-2Mi": "1Gi", "memory": "2Gi"}, True),
        ({"cpu": 1}, True),
        ({"rdma/ib": 1}, False),
        ({"hugepages-2Mi": "1Gi", "memory": "2Gi"}, False),
    ],
)
def test_devices_of_a_fabric_come_with_accelerators(
    server: BareServer, limits: Mapping[str, Any], sound: bool
) -> None:
    """The queue does not count them, so a job with only such devices would take them from other teams."""
    resources = {"limits": dict(limits)}
    for answer in (refusal(server, pod(resources=resources)), server.refusal(job(resources=resources))):
        assert (answer == "") is sound, answer
        assert sound or "come with accelerators (nvidia.com/gpu)" in answer


@pytest.mark.parametrize(("annotation", "gives", "message"), table(__file__)["annotations"])
def test_no_annotation_gives_a_pod_devices_or_another_interface(
    server: BareServer, annotation: str, gives: str, message: str
) -> None:
    asked = {**pod(), "metadata": {**ABOUT, "annotations": {annotation: gives}}}
    assert message in refusal(server, asked)


def train_job(runtime: str = "torch-distributed", **resources: Any) -> Manifest:
    trainer = {"resourcesPerNode": resources} if resources else {}
    spec = {"runtimeRef": {"name": runtime}, "trainer": trainer}
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": ABOUT,
        "spec": spec,
    }


def tf_job(*types: str) -> Manifest:
    replicas = {"replicas": 1, "template": {"spec": pod_spec(name="tensorflow")}}
    spec = {"runPolicy": {"cleanPodPolicy": "Running"}, "tfReplicaSpecs": dict.fromkeys(types, replicas)}
    return {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": ABOUT, "spec": spec}


COUNTED = [
    (train_job(), ""),
    (train_job(limits=WHOLE), ""),
    (train_job(limits={"nvidia.com/gpu": 0}), ""),
    (train_job(limits={"cpu": 1}), "resourcesPerNode"),
    (train_job(limits={}), "resourcesPerNode"),
    (train_job(requests={"cpu": 1}), "resourcesPerNode"),
    (train_job("of-the-administrator", limits=WHOLE), ""),
    (train_job("of-the-administrator", limits={"cpu": 1}), "resourcesPerNode"),
    (tf_job("Chief", "PS", "Worker", "Evaluator"), ""),
    (tf_job("Worker", "worker"), "tfReplicaSpecs"),
    (tf_job("Worker", "Helper"), "tfReplicaSpecs"),
]
"""Operators accept forms of jobs that Kueue does not read, and would admit without accelerators."""


def near(level: str) -> Manifest:
    asked = job()
    asked["spec"]["template"]["metadata"] = {
        "annotations": {"kueue.x-k8s.io/podset-required-topology": level}
    }
    return asked


def named(name: str) -> Manifest:
    return {**train_job(), "metadata": {**ABOUT, "name": name}}


SENSIBLE = [
    (job(resources={"limits": {**WHOLE, "nvidia.com/gpu": 16}}), "has (nvidia.com/gpu=8); take more"),
    (train_job(limits={**WHOLE, "nvidia.com/gpu": "16"}), "has (nvidia.com/gpu=8); take more nodes"),
    (near("cloud.provider.com/topology-rack"), "name a level of this cluster's topologies"),
    (near("kubernetes.io/hostname"), ""),
    (named("n" * 49), "metadata.name: shorten it"),
    (named("n" * 48), ""),
    (job(env=seen("HF_TOKEN", "hf_abcdefghijklmnopqrstuvwxyz012345")), "looks like a token"),
    (job(env=seen("STRATEGY", "risk-averse-portfolio-of-models")), ""),
]
"""What can never run, or leaks a secret."""


def with_spec(**fields: Any) -> dict[str, Any]:
    asked = pod()
    asked["spec"] |= fields
    return asked


def claim(size: str) -> dict[str, Any]:
    return {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}


def claimed(**fields: Any) -> dict[str, Any]:
    """A pod with an ephemeral volume."""
    template = {"spec": {**claim("1Gi"), **fields}}
    return with_spec(volumes=[{"name": "more", "ephemeral": {"volumeClaimTemplate": template}}])


def mounted(read_only: bool, **user: Any) -> dict[str, Any]:
    """A pod that mounts a claim of all teams read only in its container."""
    source = {"claimName": names.TRAINING_ENV, "readOnly": read_only}
    asked = pod(volumeMounts=[{"name": "env", "mountPath": "/env", "readOnly": True}])
    asked["spec"] |= {"volumes": [{"name": "env", "persistentVolumeClaim": source}]}
    asked["spec"]["securityContext"] = {**USER, **user}
    return asked


def in_folder(claim_name: str, **folder: str) -> dict[str, Any]:
    """A pod that mounts a folder of a claim, read only."""
    asked = pod(volumeMounts=[{"name": "data", "mountPath": "/data", "readOnly": True, **folder}])
    source = {"claimName": claim_name, "readOnly": True}
    asked["spec"] |= {"volumes": [{"name": "data", "persistentVolumeClaim": source}]}
    return asked


def annotated(annotations: Mapping[str, str]) -> dict[str, Any]:
    """A pod with an ephemeral volume whose claim is annotated."""
    template = {"metadata": {"annotations": dict(annotations)}, "spec": claim("1Gi")}
    return with_spec(volumes=[{"name": "more", "ephemeral": {"volumeClaimTemplate": template}}])


def many_containers(count: int) -> dict[str, Any]:
    small = {**MAIN, "resources": {"limits": {"ephemeral-storage": "1Mi"}}}
    return with_spec(containers=[{**small, "name": f"c{n}"} for n in range(count)])


ANOTHER_PROFILE = {"type": "Localhost", "localhostProfile": "podman"}
"""Ubuntu has loaded it, and it confines nothing."""
TRACKING = "batch.kubernetes.io/job-tracking"
PAGES = {"hugepages-2Mi": "1Gi", "memory": "2Gi"}
SECRET = {"secretRef": {"name": "mine"}}


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (with_spec(resources={"requests": PAGES, "limits": PAGES}), "resources of a pod: only cpu and"),
        (with_spec(resources={"requests": {"memory": "2Gi"}}), ""),
        (
            with_spec(resourceClaims=[{"name": "nics", "resourceClaimTemplateName": "mine"}]),
            "come with accelerators",
        ),
        (pod(env=seen("NVIDIA_MOFED", "enabled")), "env AMD_VISIBLE_DEVICES"),
        (pod(env=seen("NVIDIA_IMEX_CHANNELS", "0")), "env AMD_VISIBLE_DEVICES"),
        (pod(env=seen("AMD_VISIBLE_DEVICES", "all")), "env AMD_VISIBLE_DEVICES"),
        (pod(env=seen("NVIDIA_MOFED", "disabled")), ""),
        (pod(envFrom=[{"prefix": "NVIDIA_VISIBLE_", **SECRET}]), "prefixes of envFrom"),
        (pod(envFrom=[{"prefix": "N", **SECRET}]), "prefixes of envFrom"),
        (pod(envFrom=[{"prefix": "NCCL_", **SECRET}, SECRET]), ""),
        (mounted(read_only=False, fsGroup=4242), "set readOnly: true in persistentVolumeClaim"),
        (mounted(read_only=False), ""),
        (mounted(read_only=True, fsGroup=4242), ""),
        (in_folder(names.TRAINING_ENV, subPath="numpy"), "by subPath"),
        (in_folder(names.TRAINING_ENV, subPathExpr="$(NAME)"), "by subPath"),
        (in_folder("host-sys", subPath="fs/cgroup/mine"), "by subPath"),
        (in_folder(names.CHECKPOINTS_CLAIM, subPath="run-1"), ""),
        ({**pod(), "metadata": {**ABOUT, "finalizers": [TRACKING]}}, ""),
        (claimed(volumeName="others"), "volumes.ephemeral"),
        (claimed(selector={"matchLabels": {"for": "others"}}), "volumes.ephemeral"),
        (claimed(storageClassName=""), "volumes.ephemeral"),
        (annotated({"volume.beta.kubernetes.io/storage-class": ""}), "volumes.ephemeral"),
        (claimed(storageClassName="fast"), ""),
        (claimed(), ""),
        (
            with_spec(containers=[{**MAIN, "name": f"c{n}"} for n in range(5)]),
            "ephemeral-storage usage per Pod",
        ),
        (with_spec(containers=[{**MAIN, "name": f"c{n}"} for n in range(4)]), ""),
        (many_containers(17), "containers of a pod: at most 16"),
        (many_containers(16), ""),
        (pod(securityContext={**RESTRICTED, "appArmorProfile": ANOTHER_PROFILE}), "appArmorProfile"),
        (pod(securityContext={**RESTRICTED, "appArmorProfile": {"type": "RuntimeDefault"}}), ""),
    ],
)
def test_other_ways_to_devices_shared_files_and_the_nodes_disk_are_refused(
    server: BareServer, asked: Manifest, message: str
) -> None:
    answer = refusal(server, asked)
    assert (message in answer) and bool(answer) is bool(message), answer


@pytest.mark.parametrize(("characters", "sound"), [(120_000, True), (131_072, False)])
def test_no_job_is_too_large_for_the_queue(server: BareServer, characters: int, sound: bool) -> None:
    """The store keeps at most 1.5 MiB: an object that is near could be neither suspended nor preempted."""
    for asked in (job(annotations={"text": "x" * characters}), job(env=seen("TEXT", "x" * characters))):
        answer = server.refusal(asked)
        assert (answer == "") is sound, answer[:500]
        assert sound or "at most 128 Ki characters" in answer


WORKLOAD: Manifest = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "trial", "namespace": TEAM},
    "spec": {
        "queueName": "default",
        "podSets": [{"name": "main", "count": 1, "template": {"spec": pod_spec()}}],
    },
}


def test_no_workload_grows_until_the_queue_cannot_preempt_it(server: BareServer) -> None:
    """Whoever applies a field is kept as its manager, and nothing limits how many there are."""
    manager = {"operation": "Apply", "apiVersion": WORKLOAD["apiVersion"], "fieldsType": "FieldsV1"}
    fields = {"fieldsV1": {"f:spec": {"f:queueName": {}}}, "time": "2026-01-01T00:00:00Z"}

    def managed(count: int) -> Manifest:
        managers = [{**manager, **fields, "manager": f"manager-{n}"} for n in range(count)]
        return {"metadata": {"managedFields": managers}, "spec": {"active": False}}

    server.apply(WORKLOAD, by=JOB_CONTROLLER)
    assert server.refusal_of_change(WORKLOAD, managed(10)) == ""
    assert "metadata.managedFields" in server.refusal_of_change(WORKLOAD, managed(5000))
    assert "spec.active" in server.refusal_of_change(WORKLOAD, {"spec": {"priority": 1}})


def test_only_the_job_controller_tracks_pods(server: BareServer) -> None:
    """The job controller would not remove its finalizer from the pods of another controller."""
    asked = with_spec(nodeSelector={})
    assert server.refusal(asked) == ""
    asked["metadata"] = {**ABOUT, "finalizers": [TRACKING]}
    assert "metadata.finalizers of a pod" in server.refusal(asked)


def of_team(kind: str, about: Manifest | None = None, **fields: Any) -> Manifest:
    metadata = {"name": "trial", "namespace": TEAM, **(about or {})}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}


EXTERNAL = of_team("Service", spec={"externalIPs": ["10.0.0.1"], "ports": [{"port": 443}]})


OWN = [
    (of_team("Secret", {"finalizers": ["example.com/mine"]}), "metadata.finalizers of a Secret"),
    (of_team("Secret", stringData={"NVIDIA_VISIBLE_DEVICES": "all"}), "keys of a Secret"),
    (of_team("Secret", stringData={"WANDB_API_KEY": "0"}), ""),
    (EXTERNAL, "externalIPs"),
    (of_team("Service", spec={"type": "ExternalName", "externalName": "x.example.com"}), "externalIPs"),
    (of_team("Service", spec={"clusterIP": "None", "ports": [{"port": 29500}]}), ""),
    # A cloud makes a disk of at least a GiB, and the quota counts the request.
    (of_team("PersistentVolumeClaim", spec=claim("1")), "minimum storage usage"),
    (of_team("PersistentVolumeClaim", spec=claim("1Gi")), ""),
]
"""Secrets, services and claims reach no further than their team."""


@pytest.mark.parametrize(("asked", "message"), [*COUNTED, *SENSIBLE, *OWN])
def test_what_no_other_team_or_queue_may_suffer_from_is_refused(
    server: BareServer, asked: Manifest, message: str
) -> None:
    answer = server.refusal(asked)
    assert (message in answer) and bool(answer) is bool(message), answer


@pytest.mark.parametrize(("name", "audience", "sound"), table(__file__)["tokens"])
def test_a_token_may_have_only_the_clouds_audience(
    server: BareServer, name: str, audience: Mapping[str, str], sound: bool
) -> None:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607, **audience}}
    asked = pod()
    asked["spec"] |= {"serviceAccountName": "default"}
    asked["spec"]["volumes"] = [{"name": name, "projected": {"sources": [source]}}]
    answer = refusal(server, asked)
    assert (answer == "") is sound, answer
    assert sound or "volumes.projected.serviceAccountToken" in answer


def test_a_refusal_has_another_reason_than_a_missing_right(server: BareServer) -> None:
    """The Kubernetes provider ignores the reason Forbidden in a preview."""
    assert server.reason({**job(), "metadata": {**ABOUT, "labels": {}}}) == "Invalid"


@pytest.mark.parametrize(("name", "value", "sound"), table(__file__)["regions"])
def test_regions_and_endpoints_are_resident(server: BareServer, name: str, value: str, sound: bool) -> None:
    expected = "" if sound else "data of this stack may be in eu"
    env = seen(name, value)
    for answer in (refusal(server, pod(env=env)), server.refusal(job(env=env))):
        assert (expected in answer) and (bool(answer) is not sound), answer


def test_a_checkpoint_fits_into_the_preemption_notice_where_its_time_is_reported(server: BareServer) -> None:
    """CoreWeave's preemption notice is 420 s, of which a quarter is the margin."""
    for seconds, sound in (("60", True), ("315", True), ("316", False), ("soon", False)):
        answer = server.refusal(job(annotations={names.CHECKPOINT_ANNOTATION: seconds}))
        assert (answer == "") is sound, answer
        assert sound or "default=315" in answer


def test_the_job_that_stages_datasets_is_admitted_as_the_teams(server: BareServer, found: Plan) -> None:
    [staging] = [each for each in found.named("Job").values() if each["metadata"]["namespace"] == TEAM]
    assert server.refusal(staging) == ""
    spec = {**staging["spec"]["template"]["spec"], "nodeSelector": {names.POOL_LABEL: "spot"}}
    assert refusal(server, {"apiVersion": "v1", "kind": "Pod", "metadata": ABOUT, "spec": spec}) == ""


EVALUATED_BY_BOTH = {
    "kubernetes-images-pinned": "by its digest",
    "kubernetes-privileged": "",  # by Pod Security or by a rule
    "residency-workloads": "data of this stack may be in",
}
"""Policy of the plan → the API server's message for a pod that it refuses."""
ONLY_THE_PLAN = {
    "driver": "drivers have namespaces of the platform's own",
    "imported-pod": "an image without a digest that is imported onto the nodes: teams import none",
    "mpi-job": "a tag that is a hash of the content, which the plan knows of `trainyard.local` alone",
    "spot-job": "the same",
}
"""Resource of the corpus → why the plan's policy permits something that a team's pod may not have."""


def pairs() -> list[Case]:
    """Return the cases of the policies' corpus in which a pod is the violation, except for unknown values."""
    cases = [each for each in corpus() if each.policy in EVALUATED_BY_BOTH]
    with_pods = (each for each in cases if specs(each.violating.props))
    return [each for each in with_pods if "$unknown" not in str(each.violating.props)]


def laid_over(sound: Mapping[str, Any], case: Case, *, violating: bool) -> dict[str, Any]:
    """Return a compliant pod with the difference between the two twins of the case."""
    twins = [specs(each.props) for each in (case.clean, case.violating)]
    made: dict[str, Any] = copy.deepcopy(dict(sound))
    for own, other in zip(*(twins[::-1] if violating else twins), strict=True):
        _lay(made["spec"], own, other)
    return made


def _lay(sound: dict[str, Any], own: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in own.items():
        before = other.get(key)
        if value == before:
            continue
        if isinstance(value, list):
            merged = sound.setdefault(key, [])
            others = before or []
            for index, item in enumerate(value):
                container = isinstance(item, dict) and isinstance(item.get("image"), str)
                if index < len(others) and container and merged:
                    _lay(merged[index], item, others[index])
                elif item not in others:
                    merged.append({**MAIN, **item} if container else item)
        elif isinstance(value, dict):
            _lay(sound.setdefault(key, {}), value, before or {})
        else:
            sound[key] = value


def specs(data: Any) -> list[dict[str, Any]]:
    """Return every pod's spec in a resource."""
    if isinstance(data, list):
        return [spec for each in data for spec in specs(each)]
    if not isinstance(data, dict):
        return []
    return [data] if "containers" in data else [spec for each in data.values() for spec in specs(each)]


def test_the_plan_and_the_api_server_evaluate_the_corpus_alike(server: BareServer) -> None:
    alike: dict[bool, set[str]] = {True: set(), False: set()}
    wrong = {}
    for case in pairs():
        resource = case.clean.name.split("-", 2)[2].removesuffix("-clean")
        bad = refusal(server, laid_over(pod(), case, violating=True))
        good = refusal(server, laid_over(pod(), case, violating=False))
        same = bad != "" and EVALUATED_BY_BOTH[case.policy] in bad and good == ""
        alike[same].add(case.policy if same else resource)
        if not same and resource not in ONLY_THE_PLAN:
            wrong[case.clean.name] = (bad, good)
    assert wrong == {}
    assert alike == {True: set(EVALUATED_BY_BOTH), False: set(ONLY_THE_PLAN)}
    assert len(pairs()) >= 20


def test_pods_of_a_dry_run_pass_the_stacks_own_rules_and_a_foreign_policy_is_named(
    server: BareServer, found: Plan
) -> None:
    _, api = api_of(server)
    planned = [{"type": each.type, "inputs": each.inputs} for each in found.resources]
    protocol = json.loads(json.dumps(planned), parse_int=float)  # which has floats only
    states = quantities.whole_numbers(protocol)
    stack = load(stack_file("coreweave"))
    assert try_pods(api, stack, states) == ([], [])
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    rule = {"expression": f"object.metadata.name != '{JOB}-0'", "message": "limits are required"}
    policy = {"matchConstraints": {"resourceRules": [pods]}, "validations": [rule]}
    binding = {"policyName": "theirs", "validationActions": ["Deny"]}
    about = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "theirs"}}
    for kind, spec in (("", policy), ("Binding", binding)):
        server.apply({**about, "kind": f"ValidatingAdmissionPolicy{kind}", "spec": spec})
    wait_for(lambda: try_pods(api, stack, states)[0])
    (problem,), _ = try_pods(api, stack, states)
    assert problem.got.startswith("refused by policy theirs")
    assert problem.path.endswith(
        "pods of torch-distributed, torch-ib-coreweave in team-platform, team-research"
    )


def api_of(server: BareServer) -> tuple[str, ApiServer]:
    unverified: dict[str, Any] = {"insecure-skip-tls-verify": True}
    text = yaml.safe_dump(kubeconfig_of(server.address, {"token": ADMIN}, **unverified))
    return text, ApiServer.of(text)


def test_an_object_of_others_is_compared_as_the_server_defaults_it(server: BareServer) -> None:
    facts, (_, api) = table(__file__, "stored"), api_of(server)
    theirs = facts["class"]
    api.create("/apis/storage.k8s.io/v1/storageclasses", theirs)
    for change, differs in facts["differs"]:
        wanted = Planned("storage.k8s.io/v1", "StorageClass", "theirs", "", "", {**theirs, **change})
        (found,) = taken(api, look(api, ()), [wanted], "trainyard/mine")
        assert found.differs == differs


def test_objects_are_stored_anew_before_their_version_goes(server: BareServer, tmp_path: Path) -> None:
    facts = table(__file__, "stored")
    old, both, new = facts["definitions"]
    text, api = api_of(server)
    mine, probe = ({**facts["widget"], "metadata": {"name": n, "namespace": TEAM}} for n in ("mine", "probe"))

    def stored(widget: Manifest) -> str:
        path = f"example.com/widgets/{TEAM}/{widget['metadata']['name']}"
        return str(server.stored(path)["apiVersion"])

    def is_stored_anew() -> bool:
        server.apply(probe)
        return stored(probe) == "example.com/v1"

    server.apply(old)
    wait_for(lambda: api.find(f"/apis/example.com/v1alpha1/namespaces/{TEAM}/widgets") is not None)
    server.apply(mine)
    server.apply(both)
    wait_for(is_stored_anew)
    assert stored(mine) == "example.com/v1alpha1"
    (tmp_path / "bundle").write_text(yaml.safe_dump(new))
    asked = {"kubeconfig": text, "owner": "trainyard/mine", "source": str(tmp_path / "bundle")}
    digests = {"widgets.example.com": digest(new)}
    CustomResourceDefinitions().create({**asked, "definitions": digests}, RecordedProgress())
    assert stored(mine) == "example.com/v1"
    found = api.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
    assert found["status"]["storedVersions"] == ["v1"]
    assert api.get(f"/apis/example.com/v1/namespaces/{TEAM}/widgets/mine")["spec"] == "kept"
