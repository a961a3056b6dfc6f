"""The plan of the shipped CoreWeave stack: pools, bucket policy, InfiniBand, volumes and access."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from infra.common.artifacts import ROOT
from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.coreweave.stackfile.target import BucketPolicySpec
from rehearsal import sdk
from tests.infra.evaluated import assert_sound, findings
from tests.infra.fates import assert_all_data_is_known, assert_guide_tells_fates
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, Registration, cluster_plan
from tests.infra.shown import blocks_of
from tests.processes import capture
from trainyard.cost.price import price_report


def own(found: Plan) -> list[Registration]:
    return [each for each in found.resources if each.type.startswith("coreweave:")]


def test_the_plan_is_the_golden_one(coreweave_plan: Plan) -> None:
    assert_golden(blocks_of(coreweave_plan), "coreweave")


def test_the_plan_is_sound(coreweave: Stack, coreweave_plan: Plan, rendered: Path) -> None:
    assert_sound("coreweave", coreweave, coreweave_plan, rendered, "coreweave:index/cksCluster:CksCluster")


def test_the_policies_see_an_open_endpoint_and_data_elsewhere(coreweave: Stack, rendered: Path) -> None:
    provider = coreweave.target.model_copy(update={"zone": "US-EAST-04A"})
    elsewhere = coreweave.model_copy(update={"target": provider})
    refused = " ".join(
        findings(
            "coreweave",
            cluster_plan(elsewhere, rendered),
            parameters={"security-private-endpoint": {"unlimited": []}},
        )
    )
    assert "security-private-endpoint" in refused
    for kind in ("CksCluster::", "NetworkingVpc::", "ObjectStorageBucket::"):
        assert kind in refused


def test_a_bucket_policy_gives_each_team_its_folder_and_admins_all(coreweave: Stack, rendered: Path) -> None:
    """CoreWeave refuses principals that a bucket's policy does not name."""
    of = "arn:aws:iam::ab1cd2:coreweave/"
    asked = BucketPolicySpec(
        administrators=(f"{of}ci",), teams={"research": f"{of}research", "platform": f"{of}platform"}
    )
    provider = coreweave.target.model_copy(update={"bucket_policy": asked})
    found = cluster_plan(coreweave.model_copy(update={"target": provider}), rendered)
    [policy] = [each for each in found.resources if each.type.endswith(":ObjectStorageBucketPolicy")]
    assert list(sdk.problems(policy.type, policy.inputs)) == []
    assert policy.retained
    arn = f"arn:aws:s3:::{policy.inputs['bucket']}"
    allowed: dict[str, set[str]] = {}
    for statement in json.loads(policy.inputs["policy"])["Statement"]:
        assert statement["Effect"] == "Allow"
        [who] = statement["Principal"]["AWS"]
        allowed.setdefault(who.removeprefix(of), set()).update(statement["Resource"])
        if statement["Action"] == ["s3:ListBucket"]:
            assert statement["Condition"]["StringLike"]["s3:prefix"][0].startswith("checkpoints/")
    assert allowed == {
        "research": {arn, f"{arn}/checkpoints/research/*"},
        "platform": {arn, f"{arn}/checkpoints/platform/*"},
        "ci": {arn, f"{arn}/*"},
    }


def test_nothing_runs_before_the_system_nodes_exist(coreweave_plan: Plan) -> None:
    system = coreweave_plan.named("NodePool")["system"]
    assert system["metadata"]["annotations"]["pulumi.com/waitFor"] == "jsonpath={.status.currentNodes}=2"
    providers = {
        each.name: each for each in coreweave_plan.resources if each.type == "pulumi:providers:kubernetes"
    }
    assert any(urn.endswith(":NodePool::system") for urn in providers["training"].dependencies)
    objects = [
        each
        for each in coreweave_plan.resources
        if each.type.startswith("kubernetes:") and ":NodePool" not in each.type
    ]
    assert {each.provider.rpartition("::")[0].rpartition("::")[2] for each in objects} == {"training"}


def test_the_kubeconfig_takes_the_token_from_the_environment(coreweave_plan: Plan) -> None:
    config: dict[str, Any] = yaml.safe_load(coreweave_plan.outputs["kubeconfig"])
    assert config["clusters"][0]["cluster"]["server"].startswith("https://")
    run = config["users"][0]["user"]["exec"]
    environment = {"COREWEAVE_API_TOKEN": "CW-SECRET-x", "PATH": "/usr/bin:/bin"}
    done = capture([run["command"], *run["args"]], env=environment, check=True)
    assert json.loads(done.stdout)["status"] == {"token": "CW-SECRET-x"}
    assert "CW-SECRET" not in coreweave_plan.outputs["kubeconfig"]


def test_machines_are_priced_by_the_zone(coreweave: Stack) -> None:
    pools = {cost.name for cost in price_report(coreweave, date(2026, 11, 21)).pools}
    assert pools == {"system", "spot", "on-demand"}


def test_data_is_retained_and_the_cluster_is_protected(coreweave_plan: Plan) -> None:
    data_types = {each.type.rpartition(":")[2] for each in own(coreweave_plan) if each.retained}
    assert "ObjectStorageBucket" in data_types
    assert {each.type.rpartition(":")[2] for each in own(coreweave_plan) if each.protect} == {
        "CksCluster",
        "ObjectStorageBucket",
    }


def test_the_number_of_autoscaled_nodes_is_no_drift_on_coreweave(coreweave: Stack, rendered: Path) -> None:
    more = {"name": "cpu", "capacity": "on-demand", "nodes": 4, "machine": "turin-gp"}
    pool = NodePoolSpec.model_validate({**more, "provisioning": "node-by-node"})
    found = cluster_plan(coreweave.model_copy(update={"pools": (*coreweave.pools, pool)}), rendered)
    scaled = found.named("NodePool")["cpu"]["spec"]
    sizes = [scaled[key] for key in ("autoscaling", "minNodes", "targetNodes", "maxNodes")]
    assert sizes == [True, 0, 0, 4]
    ignored = {each.name: each.ignored for each in found.resources if each.type.endswith(":NodePool")}
    assert ignored == {"system": (), "spot": (), "on-demand": (), "cpu": ("spec.targetNodes",)}


def test_all_data_is_known_and_the_guide_says_what_becomes_of_it(coreweave_plan: Plan) -> None:
    assert_all_data_is_known(coreweave_plan, "coreweave")
    assert_guide_tells_fates(coreweave_plan, "coreweave", ROOT / "docs" / "coreweave.md")
