"""Racks of A4X: placed by a workload policy, NICs by DRANET, and NVLink domains by NVIDIA's DRA driver."""

from pathlib import Path
from typing import Any

import pytest

from catalog import fabric_lint
from infra.common.artifacts import Artifacts
from infra.stackfile import Stack, load
from tests.infra.evaluated import findings
from tests.infra.golden import CASES, assert_golden
from tests.infra.plan import Plan, plan, pools_of
from tests.infra.shown import blocks_of
from trainyard.images.images import inventory

FABRIC = "roce-nvl72"
CONCERNED = ("NodePool", "ResourcePolicy", "Topology", "ResourceFlavor", "ComputeDomain", "Release")


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(CASES / "racks" / "gcp.yaml")


@pytest.fixture(scope="module")
def found(stack: Stack, rendered: Path) -> Plan:
    return plan(stack, rendered)


def pod_of(found: Plan, runtime: str) -> dict[str, Any]:
    spec = found.named("ClusterTrainingRuntime")[runtime]["spec"]["template"]["spec"]
    pod: dict[str, Any] = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    return pod


def test_the_plan_is_the_golden_one(found: Plan) -> None:
    of_racks = [
        each
        for each in found.resources
        if each.type.rpartition(":")[2] in CONCERNED or each.name == f"torch-{FABRIC}"
    ]
    assert_golden(blocks_of(Plan(tuple(of_racks))), "racks-gcp")


def test_pods_claim_their_nics_and_a_channel_of_their_domain(found: Plan) -> None:
    pod = pod_of(found, f"torch-{FABRIC}")
    assert [each["name"] for each in pod["resourceClaims"]] == list(fabric_lint.claims(FABRIC))
    assert len(pod["resourceClaims"]) == 2
    limits = pod["containers"][0]["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == 4
    assert list(fabric_lint.pod(pod, 16, FABRIC)) == []
    domains = found.named("ComputeDomain")
    assert {each["metadata"]["namespace"] for each in domains.values()} == {"team-research", "team-vision"}


def test_pods_tolerate_the_taint_of_arm_machines(stack: Stack, rendered: Path) -> None:
    pools = pools_of(stack, rendered)
    arm = {"key": "kubernetes.io/arch", "operator": "Exists", "effect": "NoSchedule"}
    assert arm in pools["gb200"].tolerations
    assert arm not in pools["h200"].tolerations


def test_nvidias_driver_gets_the_root_of_gkes_gpu_driver(found: Plan) -> None:
    release = found.named("Release")["dra-driver-nvidia-gpu"]
    values = release["values"]
    assert values["nvidiaDriverRoot"] == "/home/kubernetes/bin/nvidia"
    assert values["kubeletPlugin"]["tolerations"] == [{"operator": "Exists"}]
    affinity = values["kubeletPlugin"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "trainyard.dev/fabric", "operator": "In", "values": [FABRIC]}]
    # GKE admits pods of critical priority to `kube-system` only, unless a quota allows a number of them.
    quotas = [quota for quota in found.named("ResourceQuota").values() if "scopeSelector" in quota["spec"]]
    assert {quota["metadata"]["namespace"] for quota in quotas} == {release["namespace"], "trainyard-logs"}


def test_nccls_plugin_is_for_the_machines_architecture(found: Plan) -> None:
    images = {}
    for name, each in found.named("DaemonSet").items():
        if name == "trainyard-logs/collector":
            continue
        spec = each["spec"]["template"]["spec"]
        if "initContainers" not in spec:
            continue  # memory-lock does not install NCCL
        (expression,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ][0]["matchExpressions"]
        images[name] = (spec["initContainers"][0]["image"].rpartition("/")[2], expression["values"])
    assert images == {
        "kube-system/nccl-rdma-installer": ("nccl-plugin-gib:v1.1.1", ["roce"]),
        "kube-system/nccl-rdma-arm64-installer": ("nccl-plugin-gib-arm64:v1.1.0", [FABRIC]),
    }


def test_the_image_of_jobs_is_for_both_architectures(stack: Stack) -> None:
    image = stack.target.model_dump()["training_image"]
    assert inventory(stack, Artifacts.from_environment()).architectures[image] == ("amd64", "arm64")


def test_the_policies_let_it_pass(found: Plan) -> None:
    assert [each for each in findings("gcp", found) if not each.startswith("residency-")] == []
