"""Racks of A4X: placed by a workload policy, NICs by DRANET, and NVLink domains by NVIDIA's DRA driver."""

from pathlib import Path

import pytest

from infra.common.artifacts import Artifacts
from infra.stackfile import Stack, load
from tests.infra.evaluated import findings
from tests.infra.golden import CASES, assert_golden
from tests.infra.plan import Plan, plan
from tests.infra.shown import blocks_of
from trainyard.images.images import inventory

FABRIC = "roce-nvl72"
CONCERNED = (
    "NodePool", "ResourcePolicy", "Topology", "ResourceFlavor", "ComputeDomain", "Release", "DaemonSet",
    "ResourceQuota",
)  # fmt: skip


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(CASES / "racks" / "gcp.yaml")


@pytest.fixture(scope="module")
def found(stack: Stack, rendered: Path) -> Plan:
    return plan(stack, rendered)


def test_the_plan_is_the_golden_one(found: Plan) -> None:
    assert_golden(blocks_of(found, *CONCERNED, f"torch-{FABRIC}"), "racks-gcp")


def test_the_image_of_jobs_is_for_both_architectures(stack: Stack) -> None:
    image = stack.target.model_dump()["training_image"]
    assert inventory(stack, Artifacts.from_environment()).architectures[image] == ("amd64", "arm64")


def test_the_policies_let_it_pass(found: Plan) -> None:
    assert [each for each in findings("gcp", found) if not each.startswith("residency-")] == []
