"""Autoscaled pools: node groups, the cluster autoscaler and its rights, and Kueue's ProvisioningRequests."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.common.images import split
from infra.stackfile import Stack, load
from rehearsal.aws.account import MotoAccount
from tests.infra.evaluated import findings
from tests.infra.golden import CASES, assert_golden
from tests.infra.plan import Plan, Registration, artifacts, plan
from tests.infra.shown import blocks_of
from tests.infra.targets.aws.test_moto import Lifecycle, in_order
from trainyard.images.images import inventory

CASE = CASES / "autoscaled" / "aws.yaml"
CONCERNED = ("NodeGroup", "Tag", "Release", "ProvisioningRequestConfig", "AdmissionCheck", "ClusterQueue")
RESOURCES = "k8s.io/cluster-autoscaler/node-template/resources"


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(CASE)


@pytest.fixture(scope="module")
def found(stack: Stack, rendered: Path) -> Plan:
    return plan(stack, rendered)


def group(found: Plan, role: str) -> Mapping[str, Any]:
    return found.named("NodeGroup")[f"training-{role}"]


def values(found: Plan) -> Mapping[str, Any]:
    release: Mapping[str, Any] = found.named("Release")["cluster-autoscaler"]["values"]
    return release


def by_urn(found: Plan) -> dict[str, Registration]:
    return {each.urn: each for each in found.resources}


def test_the_plan_is_the_golden_one(found: Plan) -> None:
    concerned = [
        each
        for each in found.resources
        if each.type.rpartition(":")[2] in CONCERNED or each.name.endswith("-cluster-autoscaler")
    ]
    # The golden plan has only a release's digest, so the test reads the chart's values.
    assert_golden({**blocks_of(Plan(tuple(concerned))), "values": values(found)}, "autoscaled-aws")


def test_jobs_without_accelerators_use_the_pool_without_accelerators_first(found: Plan) -> None:
    """Jobs with accelerators have no quota there, and the pool has no topology above the host."""
    for queue in found.named("ClusterQueue").values():
        [group] = queue["spec"]["resourceGroups"]
        first = group["flavors"][0]
        assert first["name"] == "preprocessing"
        assert first["resources"] == [
            {"name": "nvidia.com/gpu", "nominalQuota": "0"},
            {"name": "pods", "nominalQuota": "100k"},
        ]
    assert found.named("ResourceFlavor")["preprocessing"]["spec"]["topologyName"] == "hosts"
    assert found.named("Topology")["hosts"]["spec"]["levels"] == [{"nodeLabel": "kubernetes.io/hostname"}]
    lists = found.named("ConfigMap")["trainyard-admission/teams"]["data"]
    assert all("preprocessing" in each for name, each in lists.items() if name.endswith(".pools"))


def test_the_policies_let_plan_and_first_preview_pass(found: Plan, stack: Stack, rendered: Path) -> None:
    assert findings("training", found, file=CASE) == []
    assert findings("training", plan(stack, rendered, preview=True), file=CASE) == []


def test_a_stack_of_fixed_pools_has_no_autoscaler(dev_plan: Plan) -> None:
    assert not dev_plan.named("Release")
    assert not dev_plan.named("Tag")
    assert not any("autoscaling" in service for service in _services(dev_plan))


def _services(found: Plan) -> list[str]:
    return [str(each["serviceName"]) for each in found.named("VpcEndpoint").values()]


def test_a_job_may_wait_until_its_nodes_have_booted(found: Plan, dev_plan: Plan) -> None:
    for made, timeout in ((found, "30m"), (dev_plan, "5m")):
        config = made.named("ConfigMap")["kueue-system/kueue-manager-config"]["data"]
        settings = yaml.safe_load(config["controller_manager_config.yaml"])
        assert settings["waitForPodsReady"]["timeout"] == timeout


def test_a_runtime_whose_grace_the_stack_sets_has_it_and_its_twins_have_not(found: Plan) -> None:
    graces = {}
    for name, runtime in found.named("ClusterTrainingRuntime").items():
        job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
        graces[name] = job["template"]["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert graces == {"torch-efav3": 600, "torch-distributed": 600, "mpi-efav3": 300, "mpi-distributed": 300}


def test_the_autoscaler_may_resize_only_groups_of_autoscaled_pools(found: Plan) -> None:
    tags = found.named("Tag")
    assert {each["autoscalingGroupName"] for each in tags.values()} == {
        "ScalingGroup/training-on-demand-us-east-2b",
        "ScalingGroup/training-preprocessing-us-east-2a",
        "ScalingGroup/training-preprocessing-us-east-2b",
    }
    (ours,) = {(each["tag"]["key"], each["tag"]["value"]) for each in tags.values()}
    tags = dict(each.split("=") for each in values(found)["autoDiscovery"]["tags"])
    assert tags[ours[0]] == ours[1]
    policy = json.loads(found.named("RolePolicy")["training-cluster-autoscaler"]["policy"])
    resizing = [
        each for each in policy["Statement"] if not any("Describe" in action for action in each["Action"])
    ]
    (statement,) = resizing
    assert statement["Condition"] == {
        "StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
    }
    assert statement["Resource"].endswith(":autoScalingGroup:*:autoScalingGroupName/eks-*")


def test_an_empty_group_is_tagged_with_what_its_nodes_would_have(found: Plan) -> None:
    pod = found.named("ClusterTrainingRuntime")["torch-efav3"]["spec"]["template"]["spec"]
    template = pod["replicatedJobs"][0]["template"]["spec"]["template"]
    asked = template["spec"]["containers"][0]["resources"]["limits"]
    empty = group(found, "on-demand-us-east-2b")
    beside_gpus = {name: str(number) for name, number in asked.items() if name != "nvidia.com/gpu"}
    assert beside_gpus
    assert (
        beside_gpus.items()
        <= {key.removeprefix(f"{RESOURCES}/"): value for key, value in empty["tags"].items()}.items()
    )
    assert empty["labels"]["k8s.amazonaws.com/accelerator"] == "h200"
    assert template["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"


def test_the_network_has_an_endpoint_for_the_autoscaler(found: Plan) -> None:
    assert "com.amazonaws.us-east-2.autoscaling" in _services(found)


def test_its_pod_identity_exists_before_its_pods_start(found: Plan) -> None:
    association = found.named("PodIdentityAssociation")["training-cluster-autoscaler-cluster-autoscaler"]
    chart = values(found)
    assert (association["namespace"], association["serviceAccount"]) == (
        "cluster-autoscaler",
        chart["rbac"]["serviceAccount"]["name"],
    )
    release = next(each for each in found.resources if each.type.endswith(":Release"))
    reached, waiting = set[str](), list(release.dependencies)
    known = by_urn(found)
    while waiting:
        urn = waiting.pop()
        if urn not in reached and urn in known:
            reached.add(urn)
            waiting += known[urn].dependencies
            provider = known[urn].provider.rpartition("::")[0].partition("::")[2].partition("::")[2]
            waiting += [provider] if provider else []
    assert any(urn.endswith("::training-cluster-autoscaler-cluster-autoscaler") for urn in reached)


def test_a_job_is_given_all_its_nodes_or_waits_for_them(found: Plan) -> None:
    (check,) = found.named("ClusterQueue")["gpu"]["spec"]["admissionChecksStrategy"]["admissionChecks"]
    assert check["onFlavors"] == ["on-demand"]
    spec = found.named("ProvisioningRequestConfig")[check["name"]]["spec"]
    assert spec["provisioningClassName"] == "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    assert spec["managedResources"] == ["nvidia.com/gpu"]
    assert spec["retryStrategy"]["backoffLimitCount"] > 1000
    assert values(found)["extraArgs"]["enable-provisioning-requests"] is True
    defined = found.named("CustomResourceDefinitions")["training-provisioning-requests"]
    assert list(defined["definitions"]) == ["provisioningrequests.autoscaling.x-k8s.io"]


def test_the_image_is_pinned_by_digest_and_listed(stack: Stack, rendered: Path) -> None:
    listed = inventory(stack, artifacts(rendered))
    (image,) = [each for each in listed.images if "cluster-autoscaler" in each]
    registry, repository, tag = split(image)
    assert (registry, repository) == ("registry.k8s.io", "autoscaling/cluster-autoscaler")
    assert tag.startswith(f"v{stack.target.kubernetes_minor}.")
    assert "@sha256:" in tag
    assert ("cluster-autoscaler", "9.59.0") in [(each.name, each.version) for each in listed.charts]


def test_groups_and_tags_pass_their_lifecycle_in_moto(found: Plan) -> None:
    with MotoAccount("us-east-2") as account:
        life = Lifecycle(account)
        for registered in in_order(found):
            life.create(registered)
        tags = [each for each in life.made if each.token.endswith(":Tag")]
        assert len(tags) == 3
        assert all(account.exists(each) for each in tags)
        for resource in reversed(life.made):
            account.delete(resource)
        assert not any(account.exists(each) for each in tags)
