"""The platform's objects on Google Cloud: pods by fabric, installers, queues, volumes and access."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stackfile import Stack
from infra.stackfile.job import JobSpec
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, plan
from tests.infra.shown import blocks_of
from tests.infra.targets.gcp.stacks import pool, queue_on
from trainyard.jobs.manifest import manifest

SPOT: dict[str, Any] = {"name": "spot", "capacity": "spot"}
RESERVED: dict[str, Any] = {"capacity": "reserved", "reservation": {"id": "h200"}}


@pytest.fixture(scope="module")
def mega_plan(gcp: Stack, rendered: Path) -> Plan:
    return plan(queue_on(gcp, pool("a3-megagpu-8g", **SPOT), pool("a3-megagpu-8g")), rendered)


@pytest.fixture(scope="module")
def dranet_plan(gcp: Stack, rendered: Path) -> Plan:
    return plan(queue_on(gcp, pool("a3-ultragpu-8g", fabric="roce-dra", **RESERVED)), rendered)


@pytest.fixture(scope="module")
def queued_plan(gcp: Stack, rendered: Path) -> Plan:
    queued = pool("a3-ultragpu-8g", name="queued", provisioning="all-at-once")
    stack = queue_on(gcp, queued, pool("a3-ultragpu-8g", **RESERVED), release_channel="none")
    return plan(stack, rendered)


def kueue(found: Plan) -> dict[str, Any]:
    config = found.named("ConfigMap")["kueue-system/kueue-manager-config"]["data"]
    settings: dict[str, Any] = yaml.safe_load(config["controller_manager_config.yaml"])
    return settings


TCPXO = ("torch-tcpxo", "team-research", "PersistentVolumeClaim", "DaemonSet")
DRANET = ("torch-roce-dra", "ResourceClaimTemplate", "ClusterQueue")
QUEUED = ("ClusterQueue", "AdmissionCheck", "ProvisioningRequestConfig", "ResourceFlavor")


def test_pods_and_queues_are_the_golden_ones(mega_plan: Plan, dranet_plan: Plan, queued_plan: Plan) -> None:
    """TCPXO's daemon is an exception of Pod Security, DRANET's NICs are claimed, queued nodes requested."""
    assert_golden(blocks_of(mega_plan, *TCPXO), "tcpxo-gcp")
    assert_golden(blocks_of(dranet_plan, *DRANET), "dranet-gcp")
    assert_golden(blocks_of(queued_plan, *QUEUED), "queued-gcp")


def test_kueue_retains_quota_until_the_end_jobs_keep_their_size_and_claims_do_not_count(
    gcp_plan: Plan, dranet_plan: Plan
) -> None:
    """Else a JobSet that restarts would run Jobs whose quota has been freed, and a part of a job without
    quota could continue to run."""
    gates = {"ElasticJobsViaWorkloadSlices": False, "ReclaimablePods": False}
    assert kueue(gcp_plan)["featureGates"] == gates
    claims = {"KueueDRAIntegration": False, "KueueDRARejectWorkloadsWhenDRADisabled": False}
    assert kueue(dranet_plan)["featureGates"] == gates | claims


def test_a_job_repeats_the_claim_and_the_resource_of_its_fabric() -> None:
    def asked(runtime: str, accelerators: int) -> dict[str, Any]:
        spec = JobSpec(
            name="digits",
            team="research",
            runtime=runtime,
            nodes=2,
            gpus=accelerators,
            args=("--config", "digits"),
        )
        per_node: dict[str, Any] = manifest(spec, "run")["spec"]["trainer"]["resourcesPerNode"]
        return per_node

    assert asked("torch-roce-dra", 8)["claims"] == [{"name": "fabric"}]
    requests = {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "8"}
    assert asked("torch-roce", 8) == {"requests": requests, "limits": {"nvidia.com/gpu": "8"}}
    assert asked("torch-ici", 4)["limits"] == {"google.com/tpu": "4"}


def test_the_topology_is_gcps_where_all_nodes_have_it(gcp: Stack, gcp_plan: Plan, rendered: Path) -> None:
    def levels(found: Plan) -> list[str]:
        return [each["nodeLabel"] for each in found.named("Topology")["fabric"]["spec"]["levels"]]

    assert levels(gcp_plan)[0] == "cloud.google.com/gce-topology-block"
    plain = plan(queue_on(gcp, pool("g2-standard-8")), rendered)
    assert levels(plain) == ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]
