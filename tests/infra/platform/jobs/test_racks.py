"""Racks of one NVLink domain: the ResourceClaims of pods, the driver, and Kueue's placement of jobs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from catalog import fabric_lint
from infra.common.artifacts import Artifacts
from infra.common.target_registry import target_of
from infra.operator_settings.dra_driver import DraDriverSettings
from infra.platform.node_software.dra_driver import values
from infra.stackfile import Stack, load, parse
from infra.stackfile.job import JobSpec
from infra.targets.base import Cluster
from tests.infra.evaluated import findings
from tests.infra.golden import CASES, assert_golden
from tests.infra.plan import Plan, artifacts, plan, record
from tests.infra.shown import blocks_of
from trainyard.images.images import inventory
from trainyard.jobs.manifest import manifest

pytestmark = pytest.mark.clouds

TARGETS = ("coreweave", "onprem")
FABRIC = {"coreweave": "ib-coreweave-nvl72", "onprem": "ib-shared-nvl72"}
CONCERNED = ("NodePool", "Topology", "ResourceFlavor", "ComputeDomain", "Release", "NetworkOperator")
CLIQUE = "nvidia.com/gpu.clique"


def racks(target: str) -> Stack:
    return load(CASES / "racks" / f"{target}.yaml")


@pytest.fixture(scope="module")
def plans(rendered: Path) -> Mapping[str, Plan]:
    return {target: plan(racks(target), rendered) for target in TARGETS}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def pod_of(found: Plan, runtime: str, index: int = 0) -> dict[str, Any]:
    spec = found.named("ClusterTrainingRuntime")[runtime]["spec"]["template"]["spec"]
    pod: dict[str, Any] = spec["replicatedJobs"][index]["template"]["spec"]["template"]["spec"]
    return pod


def test_the_plans_are_the_golden_ones(plans: Mapping[str, Plan], target: str) -> None:
    assert_golden(blocks_of(plans[target], *CONCERNED, f"torch-{FABRIC[target]}"), f"racks-{target}")


def test_the_policies_let_the_plans_pass(plans: Mapping[str, Plan], target: str) -> None:
    found = findings(target, plans[target])
    # The shipped stack's data may be in Spain alone, and these racks are in the United States.
    assert [each for each in found if not each.startswith("residency-")] == []


def test_each_team_has_a_domain_whose_template_its_pods_claim(plans: Mapping[str, Plan], target: str) -> None:
    found, fabric = plans[target], FABRIC[target]
    teams = {f"team-{team.name}" for team in racks(target).teams}
    domains = found.named("ComputeDomain")
    assert {each["metadata"]["namespace"] for each in domains.values()} == teams
    made = {each["spec"]["channel"]["resourceClaimTemplate"]["name"] for each in domains.values()}
    for index, framework in ((0, "torch"), (0, "mpi"), (1, "mpi")):
        pod = pod_of(found, f"{framework}-{fabric}", index)
        (claim,) = pod["resourceClaims"]
        assert {claim["resourceClaimTemplateName"]} == made
        assert all(each["resources"]["claims"] == [{"name": claim["name"]}] for each in pod["containers"])
        assert list(fabric_lint.pod(pod, 16, fabric)) == []


def test_racks_on_spectrum_x_have_an_interface_of_the_pod_on_each_port(rendered: Path) -> None:
    text = (CASES / "racks" / "coreweave.yaml").read_text()
    for of_infiniband, of_ethernet in {
        "gb300-4x}": "gb300-4x-e}",
        "gb200-4x}": "gb300-4x-e}",
        "-ib-": "-roce-",
    }.items():
        text = text.replace(of_infiniband, of_ethernet)
    found = plan(parse(yaml.safe_load(text)["config"]["trainyard:stack"]), rendered)
    runtime = found.named("ClusterTrainingRuntime")["torch-roce-coreweave-nvl72"]["spec"]["template"]["spec"]
    template = runtime["replicatedJobs"][0]["template"]["spec"]["template"]
    networks = template["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"].split(",")
    ports = {f"ibs{gpu}p{port}" for gpu in range(4) for port in range(4)}
    assert len(networks) == 16
    assert set(networks) == {f"cw-multus/{port}-macvlan" for port in ports}
    (container,) = template["spec"]["containers"]
    assert container["resources"]["limits"]["rdma/ib"] == 1
    assert {"name": "NCCL_IB_ADDR_FAMILY", "value": "AF_INET6"} in container["env"]
    assert [each["name"] for each in template["spec"]["resourceClaims"]] == ["nvlink"]
    assert list(fabric_lint.pod(template["spec"], 16, "roce-coreweave-nvl72", template)) == []


def test_the_driver_joins_nodes_and_the_device_plugin_allocates_gpus(rendered: Path) -> None:
    images = artifacts(rendered).published["dra-driver-nvidia-gpu"].images
    found = values(DraDriverSettings("/run/nvidia/driver"), images, {"role": "system"})
    assert found["resources"] == {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}}
    assert f"{found['image']['repository']}:{found['image']['tag']}" == images["driver"]
    affinity = found["kubeletPlugin"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": CLIQUE, "operator": "Exists"}]


@pytest.mark.parametrize(
    ("provider", "driver"),
    [
        ({}, DraDriverSettings("/run/nvidia/driver")),
        ({"gpu_driver": "existing"}, DraDriverSettings("/")),
        ({"dra_driver": "existing"}, None),
    ],
)
def test_the_driver_gets_the_root_of_the_gpu_driver_and_an_existing_one_is_not_changed(
    provider: dict[str, str], driver: DraDriverSettings | None, rendered: Path
) -> None:
    data = racks("onprem").model_dump(mode="json", by_alias=True, exclude_none=True)
    stack = parse({**data, "target": data["target"] | provider})
    found: list[Cluster] = []

    def program() -> dict[str, Any]:
        found.append(target_of("onprem").cluster_class()(stack, artifacts(rendered)))
        return {}

    record(program)
    assert found[0].settings.software.dra_driver == driver


def test_a_job_repeats_its_runtimes_claim_and_the_lint_reports_a_missing_one() -> None:
    job = JobSpec(
        name="digits",
        team="research",
        runtime="torch-ib-coreweave-nvl72",
        nodes=16,
        gpus=4,
        args=("--config", "digits"),
    )
    spec = manifest(job, "run")["spec"]
    assert spec["trainer"]["resourcesPerNode"]["claims"] == [{"name": "nvlink"}]
    assert list(fabric_lint.train_job(spec)) == []
    del spec["trainer"]["resourcesPerNode"]["claims"]
    (fault,) = fabric_lint.train_job(spec)
    assert (fault.where, fault.got) == (
        "trainer.resourcesPerNode.claims",
        "claims to nothing, without nvlink",
    )


def test_the_image_of_jobs_must_be_for_grace_and_for_the_system_nodes_too() -> None:
    stack = racks("coreweave")
    found = inventory(stack, Artifacts.from_environment())
    assert stack.target.model_dump()["training_image"] in found.images
    assert found.architectures == {stack.target.model_dump()["training_image"]: ("amd64", "arm64")}
