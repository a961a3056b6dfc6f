"""What the ceilings count besides machines: control planes and NAT, by dated prices or one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from policies.config import Stack
from policies.cost import ceilings
from policies.judgement import Court
from policies.policy import Resource
from policies.unknowns import Properties
from tests.policies.corpus import with_unknown

POOL = {"name": "cpu", "capacity": "on-demand", "machine": "m7i.xlarge", "num_nodes": 1}
VPC = {"id": "vpc-0123456789abcdef0"}
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def refusals(provider: Mapping[str, Any], pools: list[dict[str, Any]], **parameters: Any) -> list[str]:
    """What the policy says of a cluster, with a ceiling of 0 unless it is told."""
    court = Court((ceilings.POLICY,), parameters={"cost-ceilings": {"hourly_usd": 0, **parameters}})
    props = Properties(with_unknown({"stack": {"provider": provider, "pools": pools}}, None))
    kind = "trainyard:infra:AwsCluster"
    resource = Resource(kind, "lab", f"urn:pulumi:s::p::{kind}::lab", props=props, stack=Stack())
    return [finding.message for finding in court.judge(resource)]


@pytest.mark.parametrize(
    ("network", "told"),
    [
        ({"nat": "none"}, "0.30 USD/h for 1 pool and a control plane"),
        ({"nat": "one"}, "0.35 USD/h for 1 pool, a control plane and NAT"),
        ({"nat": "per-zone"}, "0.44 USD/h for 1 pool, a control plane and NAT"),
        ({"nat": "one", "existing": VPC}, "0.30 USD/h for 1 pool and a control plane"),
    ],
)
def test_the_control_plane_and_the_gateways_that_the_stack_makes_count(
    network: dict[str, Any], told: str
) -> None:
    provider = {"kind": "aws", "region": "us-east-1", "zones": ZONES, "network": network}
    (message,) = refusals(provider, [POOL])
    assert f"got {told};" in message


def test_cloud_nat_counts_no_more_than_32_machines() -> None:
    provider = {"kind": "gcp", "region": "us-central1", "network": {"nat": True}}
    pools = [{"name": "cpu", "capacity": "on-demand", "machine": "e2-standard-4", "num_nodes": 100}]
    own = {"e2-standard-4": 0.01}
    (message,) = refusals(provider, pools, prices=own, service_prices={"cloud-nat-vm": 1})
    assert "got 33.10 USD/h for 1 pool, a control plane and NAT;" in message


def test_a_service_without_a_price_is_refused_and_one_of_ones_own_stands_in() -> None:
    provider = {"kind": "aws", "region": "cn-north-1", "zones": ["cn-north-1a"], "network": {"nat": "one"}}
    own = {"prices": {"m7i.xlarge": 0.2}, "hourly_usd": 10}
    told = refusals(provider, [POOL], **own)
    assert [each.partition(";")[0] for each in told] == [
        "stack.provider: got eks-cluster, which has no price in cn-north-1",
        "stack.provider.network.nat: got nat-gateway, which has no price in cn-north-1",
    ]
    services = {"eks-cluster": 0.1, "nat-gateway": 0.05}
    assert refusals(provider, [POOL], **own, service_prices=services) == []


def test_a_ceiling_of_pools_asks_for_no_price_of_services() -> None:
    provider = {"kind": "aws", "region": "eu-west-1", "zones": ["eu-west-1a"], "network": {"nat": "one"}}
    own = {"prices": {"m7i.xlarge": 0.2}, "hourly_usd": None, "pool_hourly_usd": 10}
    assert refusals(provider, [POOL], **own) == []


def test_a_filesystem_that_is_there_already_is_bought_by_its_owner() -> None:
    existing = {"id": "fs-0123456789abcdef0"}
    filesystem = {"kind": "lustre", "capacity_gib": 4800, "throughput": 250}
    provider = {"kind": "aws", "region": "us-east-1", "zones": ZONES, "network": {"nat": "none"}}
    (unpriced,) = refusals({**provider, "filesystem": filesystem}, [POOL], hourly_usd=10)
    assert "fsx-lustre-250, which has no price" in unpriced
    assert (
        refusals({**provider, "filesystem": {**filesystem, "existing": existing}}, [POOL], hourly_usd=10)
        == []
    )
