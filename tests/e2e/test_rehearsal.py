"""Rehearsals on the real engine: every stack's lifecycle, with refusals and faults of the clouds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stackfile import Stack, load
from rehearsal.fake import refusals_of
from tests.e2e.rehearsed import install_plugin, rehearse
from tests.infra.golden import CASES, VARIANTS, subject
from tests.infra.plan import stack_file
from tests.mac.host import environment, trainyard
from tests.tables import table

pytestmark = pytest.mark.engine

PHASES = ["preview", "up", "up again", "refresh", "update", "unprotect", "destroy"]
AFTER_REFUSALS = ["preview", "up after refusals", *PHASES[2:]]
SURVIVED = {
    "aws": {"block-begins-meanwhile", "block-not-begun", "no-cards", "spot-empty"},
    "azure": {"new-identity", "no-cards", "spot-empty"},
    "gcp": {"no-cards", "not-on-demand", "spot-empty"},
    "coreweave": {"no-cards"},
    "onprem": set[str](),
}
"""Stack → refusals that none of its requests triggers; all others of its target are triggered."""


def expect_all_refusals(report: Any, stack: str) -> None:
    """Assert that each refusal occurred with a next step and `up` continued, or that nothing triggered it."""
    fixes = {each["name"]: each["fix"] for each in report["refused"]}
    known = refusals_of(stack).keys()
    assert (set(report["survived"]), set(fixes)) == (SURVIVED[stack], known - SURVIVED[stack])
    assert all("run the same command again" in fix for fix in fixes.values())


@pytest.mark.soak
@pytest.mark.parametrize("stack", SURVIVED)
def test_every_refusal_of_a_cloud_is_survived_or_has_the_next_step(stack: str, tmp_path: Path) -> None:
    report = rehearse(tmp_path, stack, "--refuse", "all")
    expect_a_whole_lifecycle(report, load(stack_file(stack)))
    expect_all_refusals(report, stack)


def refusing(*names: str) -> list[str]:
    """Return options of the command; refusals that occur take a further `up` or `destroy`."""
    return [part for name in names for part in ("--refuse", name)]


@pytest.mark.soak
def test_the_aws_stack_passes_its_lifecycle_without_any_spot(tmp_path: Path) -> None:
    survived = ["block-not-begun", "no-cards", "spot-empty"]
    expected = {"quota-addresses", "quota-vpcs", "left-in-subnet", "left-in-group", "left-with-address"}
    refused = refusing(*survived, *expected)
    report = rehearse(tmp_path, "aws", *refused)
    assert [phase["name"] for phase in report["phases"]] == AFTER_REFUSALS
    assert ({each["name"] for each in report["refused"]}, report["survived"]) == (expected, survived)
    assert "trainyard:aws:NodeGroupSize training-spot-p5en-48xlarge-us-east-2b" in report["order"]
    assert report["resources"]["aws"] > 100
    assert "aws:eks/nodeGroup:NodeGroup training-on-demand-us-east-2b" in report["order"]
    made = [step.partition("/")[2].partition(":")[0] for step in report["order"]]
    assert made.index("vpc") < made.index("cluster") < made.index("nodeGroup")
    assert "aws:s3/bucket:Bucket training-bucket" in report["keptAfterDestroy"]
    assert report["price"]["usdPerHour"] > 0
    assert any("aws:eks/addon:Addon" in each for each in report["notProven"])


AUTOSCALED = CASES / "autoscaled" / "aws.yaml"


def rehearse_case(
    folder: Path, case: Path, *options: str, provider: Mapping[str, Any] = {}, code: int = 0
) -> Any:
    """Rehearse a stack file that is not shipped."""
    own = yaml.safe_load(case.read_text())["config"]
    own["trainyard:stack"]["target"] |= provider
    name = case.parent.name
    stacks = folder / "stacks"
    stacks.mkdir()
    (stacks / f"Pulumi.{name}.yaml").write_text(yaml.safe_dump({"config": own}))
    return rehearse(folder, name, *options, stacks=stacks, code=code)


@pytest.mark.soak
def test_autoscaled_pools_pass_their_lifecycle(tmp_path: Path) -> None:
    report = rehearse_case(tmp_path, AUTOSCALED)
    assert [phase["name"] for phase in report["phases"]] == PHASES
    order = report["order"]
    tag = order.index("aws:autoscaling/tag:Tag training-on-demand-us-east-2b")
    assert order.index("aws:eks/nodeGroup:NodeGroup training-on-demand-us-east-2b") < tag
    assert "kubernetes:helm.sh/v3:Release cluster-autoscaler" in order


CLUSTERS = {
    CASES / "existing-cluster" / "aws.yaml": ("aws:eks/cluster:", "aws:eks/nodeGroup:"),
    CASES / "existing-cluster" / "gcp.yaml": ("gcp:container/cluster:", "gcp:container/nodePool:"),
}
"""Case → beginnings of the types of its cluster and of its pools."""


@pytest.mark.soak
@pytest.mark.parametrize("case", CLUSTERS, ids=subject)
def test_an_existing_cluster_still_exists_in_the_end(case: Path, tmp_path: Path) -> None:
    report = rehearse_case(tmp_path, case)
    assert [phase["name"] for phase in report["phases"]] == PHASES
    cluster, pool = CLUSTERS[case]
    assert not [each for each in report["order"] if each.startswith(cluster)]
    assert [each for each in report["order"] if each.startswith(pool)]


OF_THEIR_OWNER = tuple(
    f"aws:{each}" for each in ("ec2/vpc:", "ec2/subnet:", "eks/cluster:", "s3/", "kms/", "fsx/", "efs/")
)
"""Types of existing resources, none of which the stack may adopt or delete."""


@pytest.mark.soak
def test_existing_resources_are_neither_adopted_nor_removed(tmp_path: Path) -> None:
    case = CASES / "existing-cluster" / "aws.yaml"
    report = rehearse_case(tmp_path, case, "--adopt", provider=table(__file__, "existing"))
    assert not [each for each in report["order"] if each.startswith(OF_THEIR_OWNER)]
    made = [each for each in report["order"] if each.startswith("aws:")]
    changes = {phase["name"]: phase["changes"] for phase in report["phases"]}
    assert 0 < changes["adopt"]["adopt"] <= len(made)
    assert not changes["adopt retained resources"]


OTHERS = [case for case in VARIANTS if case not in (AUTOSCALED, *CLUSTERS)]
"""Cases whose rehearsals no other test runs."""


@pytest.mark.soak
@pytest.mark.parametrize(
    ("case", "expected", "survived"),
    [
        (CASES / "block" / "aws.yaml", ["block-begins-meanwhile"], ["block-not-begun"]),
        (CASES / "declared" / "gcp.yaml", ["not-on-demand"], []),
    ],
    ids=["block", "declared"],
)
def test_refusals_that_no_shipped_stack_causes(
    case: Path, expected: list[str], survived: list[str], tmp_path: Path
) -> None:
    report = rehearse_case(tmp_path, case, *refusing(*expected, *survived))
    expect_a_whole_lifecycle(report, load(case))
    assert ([each["name"] for each in report["refused"]], report["survived"]) == (expected, survived)


@pytest.mark.soak
@pytest.mark.parametrize("case", OTHERS, ids=subject)
def test_every_other_case_passes_its_lifecycle(case: Path, tmp_path: Path) -> None:
    report = rehearse_case(tmp_path, case)
    expect_a_whole_lifecycle(report, load(case))


def expect_a_whole_lifecycle(report: Any, stack: Stack) -> None:
    """Assert that the report has all phases, and the nodes of the queues' pools."""
    protected = getattr(stack.target, "deletion_protection", False)
    expected = [phase for phase in PHASES if protected or phase != "unprotect"]
    names = [phase["name"].removesuffix(" after refusals") for phase in report["phases"]]
    assert names == expected
    pools = {flavor.pool for queue in stack.queues for flavor in queue.flavors}
    flavors = {f"kubernetes:kueue.x-k8s.io/v1beta2:ResourceFlavor {pool}" for pool in pools}
    assert flavors <= set(report["order"])


@pytest.mark.soak
def test_the_tpu_stack_passes_its_lifecycle(tmp_path: Path) -> None:
    report = rehearse(tmp_path, "gcp-tpu")
    assert [phase["name"] for phase in report["phases"]] == PHASES
    slices = [
        made for made in report["order"] if made.startswith("gcp:container/nodePool:NodePool tpu-slices-")
    ]
    # Two, and two more by the change in the midst of its life, which doubles a pool.
    assert sorted(each.rpartition("-")[2] for each in slices) == ["0", "1", "2", "3"]


@pytest.mark.soak
@pytest.mark.parametrize("stack", ["aws-dev", "aws", "azure", "gcp", "gcp-tpu"])
def test_a_lost_state_is_rebuilt_and_a_stack_adopts_what_destroy_retained(stack: str, tmp_path: Path) -> None:
    report = rehearse(tmp_path, stack, "--adopt")
    names = [phase["name"] for phase in report["phases"]]
    assert names[2:4] == ["adopt", "up after adoption"]
    again = [name for name in names[names.index("destroy") + 1 :] if name != "unprotect again"]
    assert again == ["adopt retained resources", "up with retained resources", "destroy again"]
    adopted = {phase["name"]: phase["changes"].get("adopt") for phase in report["phases"]}
    assert adopted["adopt"] > adopted["adopt retained resources"] > 0


@pytest.mark.soak
@pytest.mark.parametrize(
    ("stack", "made"),
    [("aws-dev", made) for made in (1, 25, 40, 60, 90, 150)]
    + [("onprem", made) for made in (1, 5, 12, 25, 50, 75, 100, 130, 160, 200, 240)],
)
def test_after_a_kill_the_next_up_takes_all_and_makes_nothing_twice(
    stack: str, made: int, tmp_path: Path
) -> None:
    report = rehearse(tmp_path, stack, "--crash-after", str(made))
    (fault,) = report["faults"]
    assert fault.startswith("the engine was killed after")
    assert [phase["name"] for phase in report["phases"]] == ["preview", "up after the fault", *PHASES[2:]]


POOLS = {
    "aws": ("NodeGroup", "on-demand"),
    "gcp": ("NodePool", "reserved"),
    "gcp-tpu": ("NodePool", "slices"),
    "azure": ("AgentPool", "on-demand"),
}
"""Stack → type of its node groups, and one of its pools."""


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
    report = rehearse(tmp_path, stack, *arguments[fault])
    assert report["faults"]
    phases = [phase["name"] for phase in report["phases"]]
    assert phases[:3] == ["preview", "up after the fault", "up again"]
    assert phases[-1] == "destroy"


def test_a_private_api_server_stops_up_with_the_next_step(tmp_path: Path) -> None:
    case = CASES / "autoscaled" / "coreweave.yaml"
    output = rehearse_case(tmp_path, case, provider={"public_endpoint": False}, code=1)
    assert "target.public_endpoint" in output
    assert "i/o timeout" in output and "docs/runners.md" in output


@pytest.mark.soak
def test_a_runner_inside_passes_the_lifecycle_of_a_private_stack(tmp_path: Path) -> None:
    access = {"admins": ["arn:aws:iam::123456789012:role/platform"]}
    (tmp_path / "closed").mkdir()
    output = rehearse_case(
        tmp_path / "closed", AUTOSCALED, "--from", "inside", provider={"access": access}, code=1
    )
    assert "target.access.private_cidrs" in output
    access["private_cidrs"] = ["10.8.0.0/24"]
    report = rehearse_case(tmp_path, AUTOSCALED, "--from", "inside", provider={"access": access})
    assert [phase["name"] for phase in report["phases"]] == PHASES


def test_a_pool_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    output = rehearse(tmp_path, "aws-dev", "--insufficient-capacity", "spot", code=2)
    assert "allowed: gpu, system" in output


def test_a_user_of_a_mac_without_variables_previews_and_asks_the_doctor(tmp_path: Path) -> None:
    install_plugin(Path(environment(tmp_path)["HOME"]), "aws", 1)
    ended = [trainyard(tmp_path, *words.split()) for words in ("preview -s local", "doctor -s aws")]
    assert [(each.returncode, "Traceback" in each.stderr) for each in ended] == [(0, False)] * 2


@pytest.mark.soak
@pytest.mark.parametrize("stack", SURVIVED)
def test_every_stack_passes_its_lifecycle_on_a_mac(stack: str, tmp_path: Path) -> None:
    ended = trainyard(tmp_path, "stack", "rehearse", "-s", stack)
    assert (ended.returncode, "Traceback" in ended.stdout + ended.stderr) == (0, False)
