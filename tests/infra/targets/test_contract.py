"""The contract of targets: each has a spec, a cluster, and reasons for the features that it lacks."""

import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest

from infra.common.artifacts import ROOT
from infra.common.target_registry import TARGETS, target_of
from infra.errors import InputError
from infra.stackfile import Stack, load, parse
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets import features
from infra.targets.base import Cluster
from infra.targets.features import Feature
from tests.infra.plan import artifacts, record, stack_file
from tests.processes import capture
from trainyard.stack.preview import declared

pytestmark = pytest.mark.clouds


def test_every_kind_has_a_stack_file() -> None:
    assert all(stack_file(kind).exists() for kind in TARGETS)


@pytest.mark.parametrize("kind", TARGETS)
def test_a_target_has_its_kind_and_reasons_for_missing_features(kind: str) -> None:
    target = target_of(kind)
    assert kind == target.kind == target.cluster_class().KIND
    assert issubclass(target.cluster_class(), Cluster)
    assert set(target.features) | set(target.reasons) == set(Feature)
    assert all(len(reason.split()) > 3 for reason in target.reasons.values())


@pytest.mark.parametrize(
    ("name", "sdk"), [("local", "pulumi_"), ("aws", "pulumi_gcp"), ("gcp", "pulumi_azure")]
)
def test_a_target_imports_no_other_ones_sdk(name: str, sdk: str) -> None:
    code = (
        "import sys; from pathlib import Path; from infra.stackfile import load;"
        " from infra.common.target_registry import target_of;"
        f" target_of(load(Path({str(stack_file(name))!r})).target.kind).cluster_class();"
        f" print([each for each in sys.modules if each.startswith({sdk!r}) and 'kubernetes' not in each])"
    )
    assert capture([sys.executable, "-c", code], check=True, cwd=ROOT).stdout.strip() == "[]"


@pytest.fixture(scope="module")
def cluster(local: Stack, rendered: Path) -> Cluster:
    found: list[Cluster] = []

    def program() -> dict[str, str]:
        found.append(target_of(local.target.kind).cluster_class()(local, artifacts(rendered)))
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
    data = local.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["pools"][1]["capacity"] = "reserved"
    with pytest.raises(InputError) as caught:
        parse(data)
    (problem,) = [each for each in caught.value.problems if each.path == "pools[1].capacity"]
    assert "cannot be reserved" in problem.fix


def test_a_new_feature_is_refused_by_all_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each target must declare a new feature itself."""
    pool = NodePoolSpec.model_validate({"name": "work", "capacity": "on-demand", "nodes": 1})
    asked = dict.fromkeys(["a feature of tomorrow"], ("name", lambda pool: True))
    monkeypatch.setattr(features, "ASKED_BY", asked)
    for kind in TARGETS:
        ((path, got, _, fix),) = target_of(kind).undeclared([pool])
        assert (path, got) == (("pools", 0, "name"), "a feature of tomorrow")
        assert "choose a target that has it" in fix


ASKING: dict[Feature, dict[str, Any]] = {
    Feature.SPOT_CAPACITY: {"capacity": "spot"},
    Feature.RESERVED_CAPACITY: {"capacity": "reserved"},
    Feature.CAPACITY_BLOCKS: {"reservation": {"id": "cr-0", "kind": "block"}},
    Feature.RESERVED_PLACEMENT: {"reservation": {"id": "cr-0", "placement_group": "gpus"}},
    Feature.ALTERNATIVE_MACHINES: {"alternatives": ["m7i.xlarge"]},
    Feature.CHOSEN_PLACEMENT: {"placement": "compact"},
    Feature.QUEUED_PROVISIONING: {"provisioning": "all-at-once"},
    Feature.AUTOSCALED_POOLS: {"nodes": "0..1"},
    Feature.TPU_SLICES: {"topology": "4x4"},
    Feature.NVLINK_DOMAINS: {"machine": "a4x-highgpu-4g"},
}


@pytest.mark.parametrize("kind", TARGETS)
@pytest.mark.parametrize("feature", Feature)
def test_a_pool_is_refused_if_the_target_lacks_its_feature(feature: Feature, kind: str, local: Stack) -> None:
    asking = NodePoolSpec.model_validate(
        {"name": "work", "capacity": "on-demand", "nodes": 1, **ASKING[feature]}
    )
    found = [got for _, got, _, _ in target_of(kind).undeclared([local.pools[0], asking])]
    assert found == ([] if feature in target_of(kind).features else [feature.value])


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_an_existing_clusters_kubeconfig_is_known_before_the_first_up(cloud: str, rendered: Path) -> None:
    stack = load(ROOT / f"tests/cases/existing-cluster/{cloud}.yaml")
    found = declared(stack, artifacts(rendered))
    claim = next(each.inputs for each in found if each.type.endswith(":ClusterClaim"))
    assert stack.target.existing_cluster.endpoint in claim["kubeconfig"]["value"]  # type: ignore[attr-defined]
