"""The fabric lint: pods and jobs without what their fabric needs, and the platform's own objects."""

import copy
from typing import Any

import pytest

from catalog import fabric_lint
from catalog.fabric_lint import FABRIC_LABEL, SIMULATED_LABEL, Fault
from infra.stackfile.job import JobSpec
from tests.infra.plan import Plan
from tests.tables import table
from trainyard.jobs.manifest import manifest

POD: dict[str, Any] = table(__file__)["pod"]


def broken(**change: Any) -> dict[str, Any]:
    pod = copy.deepcopy(POD)
    for key, value in change.items():
        (pod if key in pod else pod["containers"][0])[key] = value
    return pod


def reported(faults: Any) -> list[tuple[str, str]]:
    return [(fault.where, fault.got) for fault in faults]


def test_a_pod_with_all_that_its_fabric_needs_passes() -> None:
    assert reported(fabric_lint.pod(POD, 4)) == []


@pytest.mark.parametrize(("change", "fault"), table(__file__)["faults"])
def test_each_missing_part_is_one_fault(change: dict[str, Any], fault: list[str]) -> None:
    assert reported(fabric_lint.pod(broken(**change), 4)) == [tuple(fault)]


def test_one_node_needs_no_fabric_and_simulated_accelerators_have_none() -> None:
    bare = broken(resources={"limits": {"nvidia.com/gpu": 8}}, env=[])
    assert reported(fabric_lint.pod(bare, 1)) == []
    bare["nodeSelector"] = {SIMULATED_LABEL: "true", FABRIC_LABEL: "efav3"}
    assert reported(fabric_lint.pod(bare, 4)) == []


@pytest.mark.parametrize(
    ("fabric", "claims"), [("roce-dra", ["fabric"]), ("nvl72", ["nvlink"]), ("efav3", [])]
)
def test_pods_of_several_nodes_need_the_claims_of_their_fabric(fabric: str, claims: list[str]) -> None:
    pod: dict[str, Any] = {
        "nodeSelector": {FABRIC_LABEL: fabric},
        "resourceClaims": [{"name": "mine", "resourceClaimTemplateName": f"{''.join(claims)}-{fabric}"}],
        "containers": [{"resources": {"limits": {"nvidia.com/gpu": 4, "vpc.amazonaws.com/efa": 16}}}],
    }
    lacks = f"claims to nothing, without {''.join(claims)}-{fabric}"
    missing = [("containers[0].resources.claims", lacks)] if claims else []
    found = [each for each in reported(fabric_lint.pod(pod, 2)) if each[0].endswith("claims")]
    assert ([*fabric_lint.claims(fabric)], found) == (claims, missing)
    pod["containers"][0]["resources"]["claims"] = [{"name": "mine"}]
    assert [each for each in reported(fabric_lint.pod(pod, 2)) if each[0].endswith("claims")] == []


def test_machines_of_the_catalogue_have_their_fabric() -> None:
    assert fabric_lint.machine_fabric("p5en.48xlarge") == "efav3"
    assert fabric_lint.machine_fabric("g6.xlarge") == "tcp"
    assert fabric_lint.machine_fabric("p9.xlarge") == ""


def test_the_platforms_runtimes_pass_the_lint(local_plan: Plan) -> None:
    """The policy evaluates those of the clouds with their plans."""
    faults: list[Fault] = []
    for name, runtime in local_plan.named("ClusterTrainingRuntime").items():
        for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
            pod = job["template"]["spec"]["template"]["spec"]
            faults += fabric_lint.pod(pod, 2, name.partition("-")[2])
    assert faults == []


def test_the_job_that_we_submit_passes_the_lint_and_fails_without_its_devices() -> None:
    job = JobSpec(
        name="digits", team="research", runtime="torch-efav3", nodes=2, gpus=8, args=("--config", "digits")
    )
    spec = manifest(job, "run")["spec"]
    assert reported(fabric_lint.train_job(spec)) == []
    spec["trainer"]["resourcesPerNode"] = {"limits": {"nvidia.com/gpu": 8}}
    assert reported(fabric_lint.train_job(spec)) == [
        ("trainer.resourcesPerNode.limits", "2 nodes without vpc.amazonaws.com/efa")
    ]
