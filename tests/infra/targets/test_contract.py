from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.errors import InputError
from infra.spec import Stack
from infra.spec.node_pool import NodePoolSpec
from infra.spec.targets import TARGETS
from infra.targets.base import Cluster, Feature, refuse_unsupported
from infra.targets.registry import CLUSTERS, cluster_class
from tests.infra.plan import Plan, artifacts, record, stack_file


def test_every_kind_has_a_spec_a_component_and_a_stack_file() -> None:
    assert set(TARGETS) == set(CLUSTERS)
    assert all(stack_file(kind).exists() for kind in TARGETS)


@pytest.mark.parametrize("kind", CLUSTERS)
def test_a_component_knows_its_kind_and_gives_reasons_for_what_it_lacks(kind: str) -> None:
    target = cluster_class(kind)
    assert kind == target.KIND
    assert issubclass(target, Cluster)
    assert set(target.UNSUPPORTED) <= set(Feature)
    assert all(len(reason.split()) > 3 for reason in target.UNSUPPORTED.values())


@pytest.fixture(scope="module")
def cluster(local: Stack, rendered: Path) -> Cluster:
    found: list[Cluster] = []

    def program() -> dict[str, str]:
        found.append(cluster_class(local.provider.kind)(local, artifacts(rendered)))
        return {}

    record(program)
    return found[0]


def test_settings_and_pools_are_plain_and_outputs_are_outputs(cluster: Cluster, local: Stack) -> None:
    assert cluster.settings.name == local.name
    assert list(cluster.pools) == [pool.name for pool in local.pools]
    assert isinstance(cluster.outputs.endpoint, pulumi.Output)
    assert isinstance(cluster.outputs.kubeconfig, pulumi.Output)


def test_only_spot_pools_have_a_preemption_notice(cluster: Cluster) -> None:
    with_notice = {name for name, pool in cluster.pools.items() if pool.preemption_notice_seconds}
    assert with_notice == {name for name, pool in cluster.pools.items() if pool.capacity == "spot"}


def test_a_feature_that_the_target_lacks_is_refused_with_the_reason(local: Stack) -> None:
    pool = local.pools[1].model_copy(update={"capacity": "reserved"})
    stack = local.model_copy(update={"pools": (local.pools[0], pool, local.pools[2])})
    with pytest.raises(InputError) as caught:
        refuse_unsupported(stack, cluster_class("local"))
    (problem,) = caught.value.problems
    assert problem.path == "pools[1].capacity"
    assert "cannot be reserved" in problem.fix


ASKING: dict[Feature, dict[str, Any]] = {
    Feature.SPOT_CAPACITY: {"capacity": "spot"},
    Feature.RESERVED_CAPACITY: {"capacity": "reserved"},
    Feature.CAPACITY_BLOCKS: {"reservation": {"id": "cr-0", "kind": "block"}},
    Feature.ALTERNATIVE_MACHINES: {"alternatives": ["m7i.xlarge"]},
    Feature.CHOSEN_PLACEMENT: {"placement": "compact"},
    Feature.NODES_ON_CALL: {"provisioning": "queued"},
    Feature.AUTOSCALED_POOLS: {"min_nodes": 0},
    Feature.TPU_SLICES: {"topology": "4x4"},
    Feature.NVLINK_DOMAINS: {"machine": "a4x-highgpu-4g"},
}


@pytest.mark.parametrize("kind", CLUSTERS)
@pytest.mark.parametrize("feature", Feature)
def test_a_pool_that_asks_for_a_feature_is_refused_where_the_target_lacks_it_and_only_there(
    feature: Feature, kind: str, local: Stack
) -> None:
    asking = NodePoolSpec.model_validate(
        {"name": "work", "capacity": "on-demand", "num_nodes": 1, **ASKING[feature]}
    )
    stack = local.model_copy(update={"pools": (local.pools[0], asking)})
    target = cluster_class(kind)
    if feature not in target.UNSUPPORTED:
        refuse_unsupported(stack, target)
        return
    with pytest.raises(InputError) as caught:
        refuse_unsupported(stack, target)
    assert [problem.got for problem in caught.value.problems] == [feature.value]


def test_the_cluster_component_registers_its_outputs(local_plan: Plan) -> None:
    assert local_plan.outputs["endpoint"] == "https://10.89.0.1:6443"
