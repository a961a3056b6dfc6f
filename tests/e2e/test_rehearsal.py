"""Rehearsals on the real engine: every stack, and everything that can go wrong on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.artifacts import ROOT
from infra.spec.aws_checks import ADDONS
from tests.e2e.rehearsed import rehearse
from tests.infra.golden import CASES

pytestmark = pytest.mark.e2e

PHASES = ["preview", "up", "up again", "refresh", "update", "unprotect", "destroy"]


def test_the_aws_stack_lives_its_whole_life(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "aws", "--assume-checkpoint", "60")
    assert [phase["name"] for phase in report["phases"]] == PHASES
    assert report["resources"]["aws"] > 100
    assert "aws:eks/nodeGroup:NodeGroup training-on-demand" in report["order"]
    chain = report["criticalPath"]
    made = [step.partition(":")[0] for step in chain]
    assert made.index("eks/cluster") < made.index("eks/nodeGroup")
    assert chain[-1].startswith("kueue.x-k8s.io/v1beta2:LocalQueue")
    assert "aws:s3/bucket:Bucket training-bucket" in report["keptAfterDestroy"]
    assert report["price"]["usdPerHour"] > 0
    assert any("a checkpoint takes 60 s, which was assumed" in each for each in report["notProven"])
    assert any("aws:eks/addon:Addon" in each for each in report["notProven"])
    assert not (ROOT / "stacks" / "checkpoint.aws.json").exists()


def test_the_gcp_stack_lives_its_whole_life(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "gcp", "--assume-checkpoint", "10")
    assert [phase["name"] for phase in report["phases"]] == PHASES
    assert "gcp:container/nodePool:NodePool training-reserved" in report["order"]
    (change,) = (phase["pools"] for phase in report["phases"] if phase["name"] == "update")
    assert change == ["pool preprocessing: num_nodes 6 → 12, in place"]
    assert "gcp:storage/bucket:Bucket training-bucket" in report["keptAfterDestroy"]


def test_the_azure_stack_lives_its_whole_life(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "azure", "--assume-checkpoint", "15")
    assert [phase["name"] for phase in report["phases"]] == PHASES
    order = report["order"]
    policy = order.index("kubernetes:mellanox.com/v1alpha1:NicClusterPolicy nic-cluster-policy")
    assert policy < order.index("kubernetes:helm.sh/v3:Release gpu-operator")
    assert "azure-native:storage:BlobContainer training-bucket" in report["keptAfterDestroy"]
    assert "azure-native:resources:ResourceGroup training-data" in report["keptAfterDestroy"]


@pytest.mark.soak
def test_pools_that_come_and_go_live_their_whole_life(tmp_path: Path) -> None:
    report = rehearse_case(tmp_path, "autoscaled", {})
    assert [phase["name"] for phase in report["phases"]] == PHASES
    order = report["order"]
    tag = order.index("aws:autoscaling/tag:Tag training-on-demand-us-east-2b")
    assert order.index("aws:eks/nodeGroup:NodeGroup training-on-demand-us-east-2b") < tag
    assert "kubernetes:helm.sh/v3:Release cluster-autoscaler" in order


@pytest.mark.soak
def test_a_cluster_that_is_there_is_still_there_in_the_end(tmp_path: Path) -> None:
    subnets = {f"us-east-2{letter}": f"subnet-0123456789abcde{letter}0" for letter in "ab"}
    cluster = {
        "name": "shared",
        "endpoint": "https://0A1B2C3D4E5F.gr7.us-east-2.eks.amazonaws.com",
        "certificate_authority": "Y2E=",
        "security_group": "sg-0123456789abcdef0",
        "version": "1.35",
        "authentication_mode": "API",
        "addons": [*ADDONS, "aws-fsx-csi-driver"],
    }
    network = {"existing": {"id": "vpc-0123456789abcdef0", "subnets": subnets}}
    report = rehearse_case(tmp_path, "autoscaled", {"network": network, "existing_cluster": cluster})
    assert [phase["name"] for phase in report["phases"]] == PHASES
    assert not [each for each in report["order"] if each.startswith("aws:eks/cluster:")]
    assert [each for each in report["order"] if each.startswith("aws:eks/nodeGroup:")]


def rehearse_case(folder: Path, name: str, provider: dict[str, Any]) -> Any:
    """Rehearse a stack file of the cases on AWS, with changes to its provider."""
    config = yaml.safe_load((CASES / name / "aws.yaml").read_text())
    config["config"]["trainyard:stack"]["provider"] |= provider
    stacks = folder / "stacks"
    stacks.mkdir()
    (stacks / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump(config))
    return rehearse(folder, name, "--assume-checkpoint", "60", stacks=stacks)


@pytest.mark.soak
def test_the_tpu_stack_lives_its_whole_life(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "gcp-tpu")
    assert [phase["name"] for phase in report["phases"]] == PHASES
    slices = [
        made for made in report["order"] if made.startswith("gcp:container/nodePool:NodePool tpu-slices-")
    ]
    # Two, and two more by the change in the midst of its life, which doubles a pool.
    assert sorted(each.rpartition("-")[2] for each in slices) == ["0", "1", "2", "3"]


@pytest.mark.soak
@pytest.mark.parametrize("stack", ["aws-dev", "aws", "azure", "gcp", "gcp-tpu"])
def test_a_lost_state_is_rebuilt_and_a_stack_comes_back_with_what_it_kept(stack: str, tmp_path: Path) -> None:
    report = rehearse(tmp_path, stack, "--adopt", "--assume-checkpoint", "10")
    names = [phase["name"] for phase in report["phases"]]
    assert names[2:4] == ["adopt", "up with all of it"]
    again = [name for name in names[names.index("destroy") + 1 :] if name != "unprotect again"]
    assert again == ["adopt what was kept", "up with what was kept", "destroy again"]
    adopted = {phase["name"]: phase["changes"].get("adopt") for phase in report["phases"]}
    assert adopted["adopt"] > adopted["adopt what was kept"] > 0


def test_without_a_measured_checkpoint_the_policy_refuses(tmp_path: Path) -> None:
    told = rehearse(tmp_path, "aws", code=1)
    assert "trainyard/spot-checkpoint-time" in told


def test_after_faults_of_the_cloud_and_a_kill_the_next_up_converges(tmp_path: Path) -> None:
    faults = ["--fail", "aws:s3/bucket:Bucket", "--insufficient-capacity", "gpu", "--crash-after", "12"]
    report = rehearse(tmp_path, "aws-dev", *faults)
    told = " ".join(report["faults"])
    assert "aws:s3/bucket:Bucket dev-bucket was refused" in told
    assert "pool gpu got no machines" in told
    assert "the engine was killed with" in told
    assert [phase["name"] for phase in report["phases"]] == ["preview", "up after that", *PHASES[2:]]


@pytest.mark.soak
@pytest.mark.parametrize("made", [1, 25, 40, 60, 90, 150])
def test_after_a_kill_the_next_up_takes_what_was_made_and_makes_nothing_twice(
    made: int, tmp_path: Path
) -> None:
    report = rehearse(tmp_path, "aws-dev", "--crash-after", str(made))
    (told,) = report["faults"]
    assert told.startswith("the engine was killed with")
    assert [phase["name"] for phase in report["phases"]] == ["preview", "up after that", *PHASES[2:]]


POOLS = {
    "aws": ("NodeGroup", "on-demand"),
    "gcp": ("NodePool", "reserved"),
    "gcp-tpu": ("NodePool", "slices"),
    "azure": ("AgentPool", "on-demand"),
}
"""Stack → type of its groups of nodes, and a pool of it."""


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["control plane", "second pool", "capacity", "kill"])
@pytest.mark.parametrize("stack", POOLS)
def test_every_cloud_converges_after_every_fault(stack: str, fault: str, tmp_path: Path) -> None:
    kind, pool = POOLS[stack]
    control_plane = "ManagedCluster" if stack == "azure" else "Cluster"
    arguments = {
        "control plane": ["--fail", control_plane],
        "second pool": ["--fail", f"{kind}:2"],
        "capacity": ["--insufficient-capacity", pool],
        "kill": ["--crash-after", "20"],
    }
    report = rehearse(tmp_path, stack, "--assume-checkpoint", "10", *arguments[fault])
    assert report["faults"]
    phases = [phase["name"] for phase in report["phases"]]
    assert phases[:3] == ["preview", "up after that", "up again"]
    assert phases[-1] == "destroy"


@pytest.mark.soak
def test_a_slow_cloud_changes_nothing_but_the_time(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "aws-dev", "--slow")
    assert [phase["name"] for phase in report["phases"]] == PHASES
    up = next(phase for phase in report["phases"] if phase["name"] == "up")
    assert up["seconds"] > 0.5 * len(report["criticalPath"])


def test_a_pool_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    told = rehearse(tmp_path, "aws-dev", "--insufficient-capacity", "spot", code=2)
    assert "system, gpu" in told
