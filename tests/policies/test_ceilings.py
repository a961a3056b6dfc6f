"""Cost ceilings besides machines: control planes and NAT, by the catalogue's prices or configured ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from policies.config import EvaluatedStack
from policies.cost import ceilings
from policies.evaluation import PolicyEvaluator
from policies.policy import Resource
from policies.unknowns import PropertyBlock
from tests.policies.corpus import with_unknown

POOL = {"name": "cpu", "capacity": "on-demand", "machine": "m7i.xlarge", "nodes": 1}
VPC = {"id": "vpc-0123456789abcdef0"}
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def refusals(provider: Mapping[str, Any], pools: list[dict[str, Any]], **parameters: Any) -> list[str]:
    """Return the policy's violations for a cluster, by default with a ceiling of 0."""
    evaluator = PolicyEvaluator(
        (ceilings.POLICY,), parameters={"cost-ceilings": {"hourly_usd": 0, **parameters}}
    )
    props = PropertyBlock(with_unknown({"stack": {"target": provider, "pools": pools}}, None))
    kind = "trainyard:infra:AwsCluster"
    resource = Resource(kind, "lab", f"urn:pulumi:s::p::{kind}::lab", props=props, stack=EvaluatedStack())
    return [finding.message for finding in evaluator.evaluate(resource)]


@pytest.mark.parametrize(
    ("network", "cost"),
    [
        ({"nat": "none"}, "0.30 USD/h for 1 pool and a control plane"),
        ({"nat": "one"}, "0.35 USD/h for 1 pool, a control plane and NAT"),
        ({"nat": "per-zone"}, "0.44 USD/h for 1 pool, a control plane and NAT"),
        ({"nat": "one", "existing": VPC}, "0.30 USD/h for 1 pool and a control plane"),
    ],
)
def test_the_control_plane_and_the_stacks_nat_gateways_count(network: dict[str, Any], cost: str) -> None:
    provider = {"kind": "aws", "region": "us-east-1", "zones": ZONES, "network": network}
    (message,) = refusals(provider, [POOL])
    assert f"got {cost};" in message


def test_cloud_nat_counts_no_more_than_32_machines() -> None:
    provider = {"kind": "gcp", "region": "us-central1", "network": {"nat": True}}
    pools = [{"name": "cpu", "capacity": "on-demand", "machine": "e2-standard-4", "nodes": 100}]
    own = {"e2-standard-4": 0.01}
    (message,) = refusals(provider, pools, prices=own, service_prices={"cloud-nat-vm": 1})
    assert "got 33.10 USD/h for 1 pool, a control plane and NAT;" in message


def test_a_service_without_a_price_is_refused_unless_a_price_is_configured() -> None:
    provider = {"kind": "aws", "region": "cn-north-1", "zones": ["cn-north-1a"], "network": {"nat": "one"}}
    own = {"prices": {"m7i.xlarge": 0.2}, "hourly_usd": 10}
    found = refusals(provider, [POOL], **own)
    assert [each.partition(";")[0] for each in found] == [
        "stack.target: got eks-cluster, which has no price in cn-north-1",
        "stack.target.network.nat: got nat-gateway, which has no price in cn-north-1",
    ]
    services = {"eks-cluster": 0.1, "nat-gateway": 0.05}
    assert refusals(provider, [POOL], **own, service_prices=services) == []


def test_a_ceiling_for_pools_needs_no_prices_of_services() -> None:
    provider = {"kind": "aws", "region": "eu-west-1", "zones": ["eu-west-1a"], "network": {"nat": "one"}}
    own = {"prices": {"m7i.xlarge": 0.2}, "hourly_usd": None, "pool_hourly_usd": 10}
    assert refusals(provider, [POOL], **own) == []


def test_an_on_premises_stack_costs_nothing() -> None:
    pools = [{"name": "gpu", "capacity": "on-demand", "accelerator": {"model": "h100"}, "nodes": 8}]
    assert refusals({"kind": "onprem", "context": "datacenter"}, pools, pool_hourly_usd=0) == []
    assert refusals({"kind": "local"}, pools, pool_hourly_usd=0) == []


def test_prices_of_coreweave_are_by_zone() -> None:
    pools = [{"name": "gpu", "capacity": "spot", "machine": "gd-8xh100ib-i128", "nodes": 2}]
    (message,) = refusals({"kind": "coreweave", "zone": "US-EAST-04A"}, pools)
    assert "got 39.42 USD/h for 1 pool;" in message
    (unpriced,) = refusals({"kind": "coreweave", "zone": "EU-SOUTH-04A"}, pools)
    assert "got gd-8xh100ib-i128, which has no price in EU-SOUTH-04A;" in unpriced


def test_a_target_without_rules_is_charged_for_its_machines() -> None:
    (unpriced,) = refusals({"kind": "toy"}, [POOL])
    assert "stack.pools[0].machine: got m7i.xlarge, which has no price;" in unpriced
    assert refusals({"kind": "toy"}, [POOL], hourly_usd=1, prices={"m7i.xlarge": 0.2}) == []


GROUP = {
    "region": "us-east-1",
    "instanceTypes": ["m7i.xlarge"],
    "scalingConfig": {"minSize": 0, "maxSize": 10},
}
CLUSTER = "trainyard:infra:AwsCluster"


@pytest.mark.parametrize(
    ("parents", "name", "counts"),
    [
        ("", "nodes", True),
        ("", "trainyard:infra:AwsCluster", True),
        ("my:trainyard:infra:AwsCluster$", "nodes", True),
        ("trainyard:infra:Network$", "nodes", True),
        ("trainyard:infra:GcpCluster$", "nodes", True),
        ("trainyard:infra:AwsClusters$", "nodes", True),
        (f"{CLUSTER}$", "nodes", False),
        (f"{CLUSTER}$my:lib:Pools$", "nodes", False),
    ],
)
def test_only_children_of_a_counted_cluster_are_not_counted_again(
    parents: str, name: str, counts: bool
) -> None:
    evaluator = PolicyEvaluator((ceilings.POLICY,), parameters={"cost-ceilings": {"hourly_usd": 1}})
    stack = EvaluatedStack()
    spec = {"target": {"kind": "aws", "region": "us-east-1", "existing_cluster": {"name": "shared"}}}
    whole = PropertyBlock({"stack": {**spec, "pools": [POOL]}})
    cluster = Resource(CLUSTER, "lab", f"urn:pulumi:s::p::{CLUSTER}::lab", props=whole, stack=stack)
    kind = "aws:eks/nodeGroup:NodeGroup"
    urn = f"urn:pulumi:s::p::{parents}{kind}::{name}"
    group = Resource(kind, name, urn, props=PropertyBlock(GROUP), stack=stack)
    assert list(evaluator.evaluate(cluster)) == []
    assert [finding.violation.property for finding in evaluator.evaluate(group)] == ["instanceTypes"] * counts


def test_a_child_of_a_cluster_that_was_not_counted_is_counted() -> None:
    evaluator = PolicyEvaluator((ceilings.POLICY,), parameters={"cost-ceilings": {"hourly_usd": 1}})
    kind = "aws:eks/nodeGroup:NodeGroup"
    urn = f"urn:pulumi:s::p::{CLUSTER}${kind}::nodes"
    (finding,) = evaluator.evaluate(
        Resource(kind, "nodes", urn, props=PropertyBlock(GROUP), stack=EvaluatedStack())
    )
    assert "USD/h for 1 pool;" in finding.message


def test_an_existing_filesystem_is_not_counted() -> None:
    existing = {"id": "fs-0123456789abcdef0"}
    filesystem = {"kind": "lustre", "capacity": "4800Gi", "throughput": 250}
    provider = {"kind": "aws", "region": "us-east-1", "zones": ZONES, "network": {"nat": "none"}}
    (unpriced,) = refusals({**provider, "filesystem": filesystem}, [POOL], hourly_usd=10)
    assert "fsx-lustre-250, which has no price" in unpriced
    assert (
        refusals({**provider, "filesystem": {**filesystem, "existing": existing}}, [POOL], hourly_usd=10)
        == []
    )
