"""Autoscaled pools: node groups, the cluster autoscaler and its rights, and Kueue's ProvisioningRequests."""

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
from tests.infra.plan import Plan, artifacts, plan
from tests.infra.shown import blocks_of
from tests.infra.targets.aws.test_moto import Lifecycle, in_order
from trainyard.images.images import inventory

CASE = CASES / "autoscaled" / "aws.yaml"
CONCERNED = ("NodeGroup", "Tag", "Release", "ProvisioningRequestConfig", "AdmissionCheck", "ClusterQueue")


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(CASE)


@pytest.fixture(scope="module")
def found(stack: Stack, rendered: Path) -> Plan:
    return plan(stack, rendered)


def values(found: Plan) -> Mapping[str, Any]:
    release: Mapping[str, Any] = found.named("Release")["cluster-autoscaler"]["values"]
    return release


def test_the_plan_is_the_golden_one(found: Plan) -> None:
    concerned = [
        each
        for each in found.resources
        if each.type.rpartition(":")[2] in CONCERNED or each.name.endswith("-cluster-autoscaler")
    ]
    assert_golden(blocks_of(Plan(tuple(concerned))), "autoscaled-aws")


def test_the_policies_let_plan_and_first_preview_pass(found: Plan, stack: Stack, rendered: Path) -> None:
    assert findings("training", found, file=CASE) == []
    assert findings("training", plan(stack, rendered, preview=True), file=CASE) == []


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


def test_its_pod_identity_exists_before_its_pods_start(found: Plan) -> None:
    association = found.named("PodIdentityAssociation")["training-cluster-autoscaler-cluster-autoscaler"]
    chart = values(found)
    assert (association["namespace"], association["serviceAccount"]) == (
        "cluster-autoscaler",
        chart["rbac"]["serviceAccount"]["name"],
    )
    release = next(each for each in found.resources if each.type.endswith(":Release"))
    reached, waiting = set[str](), list(release.dependencies)
    known = {each.urn: each for each in found.resources}
    while waiting:
        urn = waiting.pop()
        if urn not in reached and urn in known:
            reached.add(urn)
            waiting += known[urn].dependencies
            provider = known[urn].provider.rpartition("::")[0].partition("::")[2].partition("::")[2]
            waiting += [provider] if provider else []
    assert any(urn.endswith("::training-cluster-autoscaler-cluster-autoscaler") for urn in reached)


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
