"""The lines of a preview about pools: each changes in place, rolling, or by replacement."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from engine.events import EngineStep, OperationResult
from infra.common.target_registry import TARGETS, target_of
from infra.targets.local.stackfile.pool_types import EMBEDDED
from tests.tables import table
from trainyard.stack.pool_changes import pool_changes

POOL_TYPES = {token: kind for name in TARGETS for token, kind in target_of(name).pool_types.items()}
POOL = {"trainyard.dev/pool": "spot"}
GROUP: dict[str, Any] = {
    "labels": POOL,
    "scalingConfig": {"minSize": 0, "desiredSize": 2, "maxSize": 2},
    "launchTemplate": {"id": "lt-1", "version": "1"},
    "version": "1.34",
    "taints": [],
}
NODE_POOL: dict[str, Any] = {
    "nodeLocations": ["a", "b"],
    "nodeCount": 1,
    "nodeConfig": {"labels": POOL, "machineType": "a3-ultragpu-8g", "taints": []},
}
CUSTOM: dict[str, Any] = {"spec": {"nodeLabels": POOL, "targetNodes": 2, "instanceType": "h100"}}
EKS = "aws:eks/nodeGroup:NodeGroup"


def step(
    op: str, kind: str, old: Mapping[str, Any], new: Mapping[str, Any], *keys: str, name: str = "p"
) -> EngineStep:
    return EngineStep(op, f"urn:pulumi:s::p::trainyard:infra:X${kind}::{name}", old, new, keys)


def reported(*steps: EngineStep, same: int = 1) -> list[str]:
    return pool_changes(OperationResult("s", "preview", {"same": same}, 1.0, steps=steps), POOL_TYPES)


def nodes(**pools: int) -> dict[str, Any]:
    return {"nodes": [{"name": f"{p}-{i}", "pool": p, "gpus": 1} for p, n in pools.items() for i in range(n)]}


KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "eks": (EKS, GROUP),
    "gke": ("gcp:container/nodePool:NodePool", NODE_POOL),
    "size": ("trainyard:gcp:NodePoolSize", {"labels": POOL, "size": 2}),
    "cks": ("kubernetes:compute.coreweave.com/v1alpha1:NodePool", CUSTOM),
    "embedded": (EMBEDDED, nodes(spot=1)),
}


@pytest.mark.parametrize(("op", "kind", "change", "keys", "sentence"), table(__file__))
def test_the_kind_of_change_is_reported(
    op: str, kind: str, change: Mapping[str, Any], keys: list[str], sentence: str
) -> None:
    token, inputs = KINDS[kind]
    old, new = ({} if op == "create" else inputs), ({} if op == "delete" else {**inputs, **change})
    assert reported(step(op, token, old, new, *keys)) == [f"pool spot: {sentence}"]


def test_a_size_that_is_unknown_in_the_preview_is_reported_as_unknown() -> None:
    later = {**GROUP, "scalingConfig": {"desiredSize": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}}
    assert reported(step("update", EKS, GROUP, later)) == ["pool spot: nodes 2 → ?, in place"]


def test_groups_of_a_pool_that_change_alike_are_reported_together_and_by_name() -> None:
    bigger = {**GROUP, "scalingConfig": {"desiredSize": 4}}
    alike = [step("update", EKS, GROUP, bigger, name=f"spot-{zone}") for zone in "abcde"]
    other = step("create", EKS, {}, GROUP, name="spot-f")
    assert reported(*alike, other) == [
        "pool spot: new, 2 nodes (spot-f)",
        "pool spot: nodes 2 → 4, in place (spot-a, spot-b, spot-c and 2 more)",
    ]


def test_pools_of_one_embedded_cluster_are_reported_separately() -> None:
    change = step("update", EMBEDDED, nodes(spot=2, old=1), nodes(spot=2, new=1))
    assert reported(change) == ["pool new: nodes 0 → 1, in place", "pool old: nodes 1 → 0, in place"]


def test_the_first_up_and_resources_other_than_pools_are_not_reported() -> None:
    assert reported(step("create", EKS, {}, GROUP), same=0) == []
    assert reported(step("update", "aws:ec2/vpc:Vpc", GROUP, {})) == []
    assert reported(step("delete-replaced", EKS, GROUP, GROUP, "instanceTypes")) == []
